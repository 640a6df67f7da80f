"""The package's config.json states what mlx_lm computes with, in the forms that Swift reads."""

import json
import math

import mlx.core as mx
import pytest
from mlx.nn.layers.linear import Linear
from mlx.nn.layers.quantized import quantize
from mlx.utils import tree_flatten
from mlx_lm import utils

from h2o_pack.errors import ExitCode
from h2o_pack.facts import pins, swift_models
from h2o_pack.files.text import parse_object
from h2o_pack.model import Tensor
from h2o_pack.models.config import describe
from h2o_pack.resolved.configuration import LARGEST, Resolved, resolve_configuration, to_json
from h2o_pack.resolved.table import Decoder, Key, decoder_of, table
from tests.bridge.models.small_configs import config_for_swift as original
from tests.bridge.models.small_configs import small_model
from tests.messages import refused
from tests.nightly import nightly_except

NEEDS_METAL = {"bitnet"}


def resolved(document, tensors=None) -> Resolved:
    return resolve_configuration(document, tensors or {}, "the model")


def read(document) -> dict:
    """Return the object that Swift's decoder reads of a resolved config.json."""
    text = document.get("text_config", document)
    return text if decoder_of(document["model_type"]).inner else innermost(document)


def innermost(document):
    return decoder_of(document["model_type"]).read(document)


def refusal(document, tensors=None) -> str:
    return refused(
        resolve_configuration, document, tensors or {}, "the model", code=ExitCode.MODEL
    )


def fits(key: Key, value) -> bool:
    """Whether Swift's JSONDecoder accepts a value for a key."""
    if value is None:
        return not key.required
    number = isinstance(value, int | float) and not isinstance(value, bool)
    kinds = {
        "int": isinstance(value, int) and not isinstance(value, bool),
        "float": number and abs(value) <= LARGEST,
        "bool": isinstance(value, bool),
        "string": isinstance(value, str),
    }
    return any(
        kinds[kind]
        if kind in kinds
        else isinstance(value, list | tuple)
        and all(fits(Key(kind[:-1], required=True), element) for element in value)
        if kind[:-1] in kinds
        else isinstance(value, dict)
        for kind in key.kinds
    )


def unreadable(decoder: Decoder, document) -> list[str]:
    """Return the keys that a decoder requires or cannot read in this form."""
    names = [
        name
        for inner_name, inner in decoder.inner.items()
        for name in unreadable(inner, document.get(inner_name, document))
    ]
    values = decoder.read(document)
    return names + [
        name
        for name, key in decoder.keys.items()
        if (name not in values and key.required) or not fits(key, values.get(name))
    ]


def logits(document):
    """Return the logits of mlx_lm's model of a config.json, with always the same weights."""
    mx.random.seed(7)
    document = json.loads(json.dumps(document))
    model_class, arguments = utils._get_classes(document)
    model = model_class(arguments.from_dict(document))
    return model(mx.array([[3, 5, 8, 13, 2, 1, 4]]))


TYPES = sorted(swift_models())


@pytest.mark.parametrize("model_type", TYPES)
def test_swift_can_read_every_type_and_finds_every_key_that_it_requires(model_type):
    assert unreadable(decoder_of(model_type), resolved(original(model_type)).document) == []


COMPUTED = sorted(set(TYPES) - NEEDS_METAL)


@pytest.mark.parametrize("model_type", nightly_except(COMPUTED[::4], COMPUTED))
def test_mlx_lm_computes_the_same_from_the_resolved_file(model_type):
    document = original(model_type)
    assert mx.array_equal(logits(document), logits(resolved(document).document))


@pytest.mark.parametrize("model_type", TYPES)
def test_resolving_again_changes_nothing(model_type):
    once = resolved(original(model_type)).document
    again = resolved(json.loads(to_json(once))).document
    assert to_json(again) == to_json(once)


@pytest.mark.parametrize("model_type", TYPES)
def test_positions_and_vocabulary_stand_in_every_file(model_type):
    document = original(model_type)
    description = describe(document, "config.json").config
    found = read(resolved(document).document)
    assert found["max_position_embeddings"] == description.context
    assert found["vocab_size"] == description.vocabulary


# Rotary embeddings


def test_a_rope_theta_that_stands_only_in_rope_parameters_is_written_for_swift():
    document = original(
        "qwen3", rope_theta=None, rope_parameters={"rope_type": "default", "rope_theta": 5e6}
    )
    assert resolved(document).document["rope_theta"] == 5e6


def test_a_scaling_that_stands_only_in_rope_parameters_is_written_for_swift():
    parameters = {
        "rope_type": "yarn", "rope_theta": 5e6, "factor": 4.0, "beta_fast": None,
        "original_max_position_embeddings": 64,
    }  # fmt: skip
    document = original("qwen3", rope_theta=None, rope_parameters=parameters)
    del document["rope_parameters"]["beta_fast"]
    written = resolved(document).document
    assert written["rope_scaling"]["type"] == written["rope_scaling"]["rope_type"] == "yarn"
    assert written["rope_scaling"]["factor"] == 4.0
    assert mx.array_equal(logits(document), logits(written))


@pytest.mark.parametrize("model_type", ["llama", "qwen2", "granite", "phi3"])
def test_a_rope_theta_that_mlx_lm_would_not_find_is_refused(model_type):
    document = original(model_type, rope_parameters={"rope_theta": 5e6})
    assert "config.json states rope_theta 5000000.0 in rope_parameters only" in refusal(
        document
    )
    same = original(model_type, rope_parameters={"rope_theta": 1000.0})
    assert resolved(same).document["rope_theta"] == 1000.0


def test_a_scaling_that_mlx_lm_would_not_find_is_refused():
    parameters = {"rope_theta": 1000.0, "rope_type": "llama3", "factor": 8.0}
    document = original("llama", rope_parameters=parameters)
    assert 'config.json states rope_type "llama3" in rope_parameters only' in refusal(document)


YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}


@pytest.mark.parametrize(
    ("model_type", "scaling", "computed"),
    [
        ("llama", YARN, "Llama.swift computes only: default and linear and llama3"),
        ("mistral", {"type": "dynamic", "factor": 2.0}, "Llama.swift computes only"),
        ("qwen2", YARN, "Qwen2.swift computes only: default and linear"),
        ("qwen2", {"rope_type": "dynamic", "factor": 2.0}, "Qwen2.swift computes only"),
        ("internlm2", {"type": "dynamic", "factor": 2.0}, "Internlm2.swift computes only"),
        ("smollm3", {"type": "linear", "factor": 2.0}, "SmolLM3.swift computes only: default"),
        ("qwen3", {"type": "dynamic", "factor": 2.0}, "Qwen3.swift computes only"),
        ("granite", {"type": "dynamic", "factor": 2.0}, "Granite.swift computes only"),
    ],
)
def test_a_rotary_embedding_that_swift_does_not_compute_is_refused(
    model_type, scaling, computed
):
    assert computed in refusal(original(model_type) | {"rope_scaling": scaling})


@pytest.mark.parametrize("model_type", ["llama", "qwen2", "qwen3", "granite", "internlm2"])
def test_a_linear_scaling_is_stated_under_both_names_of_its_kind(model_type):
    document = original(model_type) | {"rope_scaling": {"type": "linear", "factor": 2.0}}
    scaling = resolved(document).document["rope_scaling"]
    assert scaling == {"type": "linear", "rope_type": "linear", "factor": 2.0}


@pytest.mark.parametrize(
    ("model_type", "scaling"),
    [
        ("llama", {"rope_type": "default"}),
        ("qwen2", {"type": "mrope", "mrope_section": [2, 3, 3], "x": None}),
        ("qwen3", {"rope_type": "default", "rope_theta": 7.0}),
    ],
)
def test_a_scaling_that_changes_nothing_is_left_out(model_type, scaling):
    document = original(model_type) | {"rope_scaling": scaling}
    written = resolved(document)
    assert (written.document["rope_scaling"], written.notes) == (None, ())
    assert mx.array_equal(logits(document), logits(written.document))


@pytest.mark.parametrize("model_type", ["qwen3_moe", "glm4_moe"])
def test_a_scaling_that_mlx_lm_ignores_is_left_out_with_a_note(model_type):
    document = original(model_type) | {"rope_scaling": {"type": "linear", "factor": 2.0}}
    written = resolved(document)
    assert written.document["rope_scaling"] is None
    assert written.notes[0].startswith('mlx_lm ignores rope_scaling of the kind "linear"')


def test_a_factor_that_gpt_oss_does_not_read_in_swift_is_refused():
    document = original("gpt_oss") | {"rope_scaling": {**YARN, "mscale": 0.5}}
    assert "rope_scaling.mscale is 0.5, but mlx-swift-lm's GPTOSS.swift" in refusal(document)
    assert resolved(original("gpt_oss") | {"rope_scaling": YARN}).document["rope_scaling"]


def test_gemma_4_states_both_of_its_rotary_embeddings_in_full():
    document = original("gemma4_text", rope_parameters={"full_attention": {"rope_theta": 5.0}})
    assert resolved(document).document["rope_parameters"] == {
        "sliding_attention": {
            "rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 1.0,
        },
        "full_attention": {
            "rope_type": "default", "rope_theta": 5.0, "partial_rotary_factor": 1.0,
        },
    }  # fmt: skip
    linear = {"sliding_attention": {"rope_type": "linear", "factor": 8.0}}
    assert 'of the kind "linear", but mlx-swift-lm\'s Gemma4Text.swift' in refusal(
        original("gemma4_text", rope_parameters=linear)
    )


def test_phi_moe_without_a_scaling_does_not_scale_in_swift_either():
    document = original("phimoe", rope_scaling=None)
    written = resolved(document).document
    assert written["original_max_position_embeddings"] == written["max_position_embeddings"]
    assert mx.array_equal(logits(document), logits(written))


# Defaults, and keys that one of both does not know


@pytest.mark.parametrize(
    ("model_type", "name", "value"),
    [
        ("qwen2", "tie_word_embeddings", True),
        ("granite", "tie_word_embeddings", True),
        ("phi3", "original_max_position_embeddings", 4096),
        ("minicpm", "rope_theta", 1_000_000.0),
        ("falcon_h1", "attention_out_multiplier", 0.9375),
        ("falcon_h1", "rope_theta", 1e11),
        ("qwen3_moe", "max_position_embeddings", 256),
        ("bailing_moe", "topk_group", 4),
        ("cohere", "logit_scale", 0.0625),
        ("minimax", "scoring_func", "sigmoid"),
        ("ernie4_5", "head_dim", 32),
    ],
)
def test_a_default_of_mlx_lm_is_stated_where_swift_has_another_or_none(model_type, name, value):
    document = original(model_type)
    if name not in ("max_position_embeddings", "head_dim"):
        document.pop(name, None)
    assert resolved(document).document[name] == value


def test_a_head_size_that_mlx_lm_computes_is_stated():
    document = original("ernie4_5") | {"head_dim": None}
    assert resolved(document).document["head_dim"] == 64 // 4


def test_counts_of_heads_that_gemma_3_leaves_out_are_stated():
    document = original("gemma3")
    for name in ("num_attention_heads", "num_key_value_heads"):
        del document["text_config"][name]
    text = resolved(document).document["text_config"]
    assert (text["num_attention_heads"], text["num_key_value_heads"]) == (8, 4)


def test_a_width_that_mlx_lm_finds_under_another_name_is_stated():
    document = original("lfm2", block_ff_dim=None, block_auto_adjust_ff_dim=False)
    assert resolved(document).document["block_ff_dim"] == document["intermediate_size"]


def test_keys_of_experts_that_a_dense_nemotron_h_lacks_are_stated():
    removed = dict.fromkeys(
        ("moe_intermediate_size", "moe_shared_expert_intermediate_size", "n_routed_experts",
         "num_experts_per_tok", "n_group", "topk_group"),
    )  # fmt: skip
    document = original("nemotron_h", hybrid_override_pattern="M*-M", **removed)
    written = resolved(document).document
    assert unreadable(decoder_of("nemotron_h"), written) == []
    assert mx.array_equal(logits(document), logits(written))


def test_a_fixed_value_of_mlx_lm_stands_in_place_of_one_that_only_swift_would_read():
    document = original("nanochat") | {"rms_norm_eps": 1e-6, "logits_softcap": 30.0}
    written = resolved(document).document
    assert (written["rms_norm_eps"], written["logits_softcap"]) == (1e-5, 15.0)
    assert (
        resolved(original("glm4") | {"tie_word_embeddings": True}).document[
            "tie_word_embeddings"
        ]
        is False
    )


@pytest.mark.parametrize(
    ("model_type", "changes", "what"),
    [
        ("cohere", {"use_qk_norm": True}, "use_qk_norm is true, but mlx-swift-lm's Cohere"),
        ("apertus", {"mlp_bias": True}, "mlp_bias is true, but mlx-swift-lm's Apertus.swift"),
        ("minicpm", {"rope_traditional": True}, "does not read it and computes with false"),
        ("mimo_v2_flash", {"attention_value_scale": 0.5}, "attention_value_scale is 0.5"),
        ("openelm", {"rope_freq_constant": 500}, "rope_freq_constant is 500, but"),
        ("openelm", {"num_kv_heads": [4, 4, 4, 4], "num_query_heads": [8, 8, 8, 8]},
         "OpenELM.swift computes num_query_heads by itself"),
    ],
)  # fmt: skip
def test_a_value_that_swift_does_not_read_and_does_not_assume_is_refused(
    model_type, changes, what
):
    assert what in refusal(original(model_type) | changes)


@pytest.mark.parametrize(
    ("model_type", "changes", "what"),
    [
        ("llama", {"rms_norm_eps": math.nan}, "rms_norm_eps is nan, which"),
        ("llama", {"rope_theta": math.inf}, "rope_theta is inf, which"),
        ("olmo2", {"rope_theta": 1e39}, "rope_theta is 1e+39, which"),
    ],
)
def test_a_number_that_swift_cannot_read_is_refused(model_type, changes, what):
    assert what in refusal(original(model_type) | changes)


def test_numbers_and_switches_take_the_forms_that_swift_reads():
    document = original("llama") | {"tie_word_embeddings": 1, "num_hidden_layers": 4}
    document["max_position_embeddings"] = 256.0
    written = resolved(document).document
    assert written["tie_word_embeddings"] is True
    assert str(written["max_position_embeddings"]) == "256"


def test_several_end_tokens_do_not_keep_swift_from_reading_falcon_h1():
    document = original("falcon_h1") | {"eos_token_id": [11, 228], "pad_token_id": None}
    assert resolved(document).document["eos_token_id"] == 11


def test_an_object_that_only_swift_would_read_is_left_out_with_a_note():
    document = original("gemma3_text") | {"text_config": {"hidden_size": 1}}
    written = resolved(document)
    assert "text_config" not in written.document
    assert written.notes[0].startswith("mlx_lm does not read text_config of this config.json")


def test_a_rotation_that_rounds_otherwise_in_swift_is_refused():
    document = original("glm4") | {"head_dim": 100, "partial_rotary_factor": 0.29}
    assert "mlx_lm rotates 28 of 100 elements, but mlx-swift-lm's GLM4.swift rotates 29" in (
        refusal(document)
    )


def test_the_rotated_part_of_a_head_is_stated_where_mlx_lm_counts_elements():
    document = original("bailing_moe", rotary_dim=8)
    assert resolved(document).document["partial_rotary_factor"] == 8 / 16


# Numbers that are not finite


BARE = '"time_step_limit": [0.0, Infinity]'


@pytest.mark.parametrize(
    "text",
    [
        BARE,
        BARE.replace("Infinity", "1e999"),
        BARE.replace("Infinity", '{"__float__": "Infinity"}'),
        BARE.replace("0.0", "-Infinity"),
        '"initializer_range": Infinity, "unknown": [1.0, -Infinity, NaN, {"x": [1e999]}]',
    ],
)
@pytest.mark.parametrize("model_type", ["nemotron_h", "granitemoehybrid", "falcon_h1"])
def test_numbers_that_are_not_finite_are_accepted_and_written_as_plain_json(model_type, text):
    if "initializer_range" in text and model_type == "falcon_h1":
        text = text.replace("initializer_range", "another")
    config = original(model_type, time_step_limit=None)
    data = json.dumps(config)[:-1].encode() + f", {text}}}".encode()
    document = parse_object(data, "config.json", "config.json")
    assert describe(document, "config.json").config.layers
    written = resolved(document).document
    plain = json.loads(to_json(written), parse_constant=pytest.fail)
    assert unreadable(decoder_of(model_type), plain) == []


def test_an_infinite_bound_is_the_largest_number_that_swift_can_read():
    document = original("nemotron_h", time_step_limit=None)
    written = resolved(document).document
    assert (written["time_step_limit_min"], written["time_step_limit_max"]) == (0.0, LARGEST)
    hybrid = original("granitemoehybrid") | {"time_step_limit": [0.0, math.inf]}
    written = resolved(hybrid).document
    assert written["time_step_limit"] == [0.0, LARGEST]
    assert mx.array_equal(logits(hybrid), logits(written))


def test_lists_at_other_keys_are_no_obstacle():
    document = original("llama") | {"rope_ratio": [1.0, math.inf], "x": math.nan}
    written = json.loads(to_json(resolved(document).document), parse_constant=pytest.fail)
    assert written["rope_ratio"][1] > LARGEST
    assert written["x"] is None


# Quantization


def quantized(model_type, bits, **changes):
    """Return the tensors of a quantized small model, by file.

    bits: bits and group size, and a mode if there is one, by a part of a module's path.
    """
    utils_model = small_model(model_type, **changes)
    fresh = type(utils_model)(utils_model.args)

    def settings(path, module):
        if not isinstance(module, Linear):
            return False
        chosen = next((value for part, value in bits.items() if part in path), None)
        return chosen and dict(zip(("bits", "group_size", "mode"), chosen, strict=False))

    quantize(fresh, class_predicate=settings)
    dtypes = {mx.uint32: "U32", mx.uint8: "U8", mx.float32: "F32"}
    return {
        "model.safetensors": tuple(
            Tensor(name, dtypes[array.dtype], array.nbytes, tuple(array.shape))
            for name, array in tree_flatten(fresh.parameters())
        )
    }


FOUR, EIGHT = (4, 32), (8, 32)


def test_bits_that_the_quantization_map_does_not_name_are_completed():
    tensors = quantized("qwen3", {"down_proj": EIGHT, "proj": FOUR}, intermediate_size=96)
    document = original("qwen3") | {"quantization": {"bits": 4, "group_size": 32}}
    quantization = resolved(document, tensors).document["quantization"]
    entries = {name: value for name, value in quantization.items() if isinstance(value, dict)}
    assert (quantization["bits"], quantization["group_size"]) == (4, 32)
    assert entries == {
        f"model.layers.{layer}.mlp.down_proj": {"bits": 8, "group_size": 32}
        for layer in range(4)
    }


def test_a_wrong_default_gives_way_to_the_most_frequent_settings():
    tensors = quantized("qwen3", {"proj": EIGHT})
    document = original("qwen3") | {"quantization": {"bits": 4, "group_size": 64}}
    quantization = resolved(document, tensors).document["quantization"]
    assert quantization == {"bits": 8, "group_size": 32}


@pytest.mark.parametrize(
    ("settings", "mode"),
    [((4, 32, "mxfp4"), "mxfp4"), ((8, 32, "mxfp8"), "mxfp8"), ((4, 16, "nvfp4"), "nvfp4")],
)
def test_a_mode_is_stated_for_all_or_for_some(settings, mode):
    document = original("qwen3") | {"quantization": {"bits": 4, "group_size": 32}}
    all_of_it = resolved(document, quantized("qwen3", {"proj": settings})).document
    bits, group_size, _ = settings
    expected = {"bits": bits, "group_size": group_size, "mode": mode}
    assert all_of_it["quantization"] == expected
    some = resolved(document, quantized("qwen3", {"up_proj": settings, "proj": EIGHT}))
    assert some.document["quantization"]["model.layers.0.mlp.up_proj"] == expected
    assert "mode" not in {k for k, v in some.document["quantization"].items() if v == mode}


def test_a_method_alone_becomes_a_quantization_that_swift_reads():
    tensors = quantized("qwen3", {"proj": (4, 32, "mxfp4")})
    document = original("qwen3") | {"quantization_config": {"quant_method": "mxfp4"}}
    assert resolved(document, tensors).document["quantization"] == {
        "bits": 4, "group_size": 32, "mode": "mxfp4",
    }  # fmt: skip


@pytest.mark.parametrize("model_type", ["gemma3", "mistral3"])
def test_modules_that_swift_calls_otherwise_stand_under_both_names(model_type):
    tensors = quantized(model_type, {"down_proj": EIGHT, "proj": FOUR})
    document = original(model_type) | {"quantization": {"bits": 4, "group_size": 32}}
    quantization = resolved(document, tensors).document["quantization"]
    for name in ("model.layers.1.mlp.down_proj", "language_model.model.layers.1.mlp.down_proj"):
        assert quantization[name] == {"bits": 8, "group_size": 32}


def test_entries_that_swift_could_not_read_are_left_out():
    tensors = quantized("qwen3", {"proj": FOUR})
    own = {"bits": 4, "group_size": 32, "kv_cache_scheme": None, "model.norm": False}
    document = original("qwen3") | {"quantization": own}
    assert resolved(document, tensors).document["quantization"] == {"bits": 4, "group_size": 32}


def test_weights_that_are_not_quantized_need_no_map():
    tensors = quantized("qwen3", {})
    assert "quantization" not in resolved(original("qwen3"), tensors).document


# The table


def test_the_table_is_of_the_pinned_version():
    assert table()["source"] == f"mlx-swift-lm at {pins()['mlx-swift-lm'].commit}"


@pytest.mark.parametrize("model_type", TYPES)
def test_the_table_has_every_supported_type_and_its_file(model_type):
    decoder, own = decoder_of(model_type), swift_models()[model_type]
    files = {decoder.file, *(inner.file for inner in decoder.inner.values())}
    assert own.swift in files or model_type == "qwen3_5"
    for name in (*own.fixed, *own.absent):
        assert name in next(iter(decoder.inner.values()), decoder).keys
