"""A model's files: folders described whole or refused, headers, and what tensors add up to."""

import json
import shutil
import struct
from pathlib import Path

import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx import nn
from mlx.utils import tree_flatten

from h2o_pack.errors import ExitCode, UserError
from h2o_pack.facts import swift_models
from h2o_pack.model import ModelFile, Tensor
from h2o_pack.models.files import (
    BYTES,
    LENGTH,
    belongs,
    from_folder,
    inference_needs,
    parse_header,
    read_tensors,
    weigh,
)
from tests.bridge.models.checkpoints import (
    ALL,
    EMBEDDING,
    TENSORS,
    checkpoint,
    folder_of,
    index,
    packed,
)
from tests.bridge.models.small_configs import small_model
from tests.bridge.trees import resolve
from tests.messages import refused, says

INDEX = "model.safetensors.index.json"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return folder_of(tmp_path / "mine")


def refusal(folder: Path) -> str:
    return refused(resolve, str(folder), code=ExitCode.MODEL)


def test_a_folder_is_taken_as_it_is(folder):
    model = resolve(str(folder))
    assert (model.id, model.commit, model.folder) == ("mine", "", folder)
    assert model.files == tuple(
        ModelFile(name, (folder / name).stat().st_size)
        for name in ("README.md", "config.json", "model.safetensors", "tokenizer.json")
    )
    assert (model.weights.bytes, model.weights.embedding_bytes) == (ALL, EMBEDDING)


def test_weights_are_counted_by_their_headers_and_not_by_the_files_size(folder):
    with (folder / "model.safetensors").open("ab") as file:
        file.write(bytes(1000))
    assert resolve(str(folder)).weights.bytes == ALL


def test_activations_have_the_dtype_of_the_tensors_and_not_of_the_config(tmp_path):
    tensors = {**TENSORS, "model.embed_tokens.weight": ("BF16", [100, 32])}
    folder = folder_of(tmp_path / "m", tensors, torch_dtype="float32")
    assert from_folder("m", folder).config.dtype == "bfloat16"


def test_tied_embeddings_are_decided_by_the_tensors_and_not_by_the_config(tmp_path):
    head = {"lm_head.weight": ("F32", [100, 32])}
    apart = folder_of(tmp_path / "a", {**TENSORS, **head}, tie_word_embeddings=True)
    tied = folder_of(tmp_path / "b", tie_word_embeddings=False)
    assert not from_folder("a", apart).weights.tied_embeddings
    assert from_folder("b", tied).weights.tied_embeddings


NEEDED = ("model-00001-of-00002.safetensors", "chat_template.jinja")
NOTICES = ("README.md", "LICENSE", "LICENSE.txt", "Notice", "USE_POLICY.md", "licence.md")
OTHERS = (
    *("adapters.safetensors", "original/model.safetensors", "pytorch_model.bin", "model.gguf"),
    *("modeling_evil.py", "eval.json", "docs/LICENSE", "README.txt"),
)


@pytest.mark.parametrize("name", [*NEEDED, *NOTICES, *OTHERS])
def test_what_inference_needs_and_notices_belong_to_a_package_and_no_other_file(name):
    assert (inference_needs(name), belongs(name)) == (name in NEEDED, name not in OTHERS)


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_folder_that_lacks_a_file_is_refused(folder, missing):
    (folder / missing).unlink()
    says(refusal(folder))


def test_all_problems_of_a_folder_are_told_together(tmp_path):
    folder = folder_of(tmp_path / "mine", num_hidden_layers="2", vocab_size=None)
    (folder / "tokenizer.json").unlink()
    (folder / "model.safetensors").write_bytes(b"")
    (folder / INDEX).write_text('{"weight_map": {"a": "../x", "b": "model-9.safetensors"}}')
    message = refusal(folder)
    for what in (
        "there is no tokenizer.json",
        'num_hidden_layers is "2"',
        "config.json lacks vocab_size",
        "model.safetensors is not a safetensors file",
        f'{INDEX} names the file "../x", which has an empty part, or a part "." or ".."',
        f'{INDEX} names "model-9.safetensors", which is missing',
    ):
        assert what in message
    assert len(message.splitlines()) == 6


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"weight_map": {"a": ["b"]}}'])
def test_an_index_that_cannot_be_read_is_refused(folder, text):
    (folder / INDEX).write_text(text)
    assert INDEX in refusal(folder)


@pytest.mark.parametrize("name", ["../w", "/w", "a\\w", "a\0w", "a//w", "./w", "C:w", ""])
def test_an_index_that_leads_elsewhere_is_refused(folder, name):
    (folder / INDEX).write_text(json.dumps({"weight_map": {"a": name}}))
    says(refusal(folder))


def test_a_stale_index_is_named_tensor_by_tensor(folder):
    more = {"model.gone": ("F32", [1]), **TENSORS}
    del more["model.norm.weight"]
    (folder / INDEX).write_text(index(model=more))
    says(refusal(folder))


def test_an_index_that_names_another_file_is_stale(folder):
    (folder / "model-2.safetensors").write_bytes(checkpoint({"model.x": ("F32", [1])}))
    (folder / INDEX).write_text(index(model_2=TENSORS, model={"model.x": ("F32", [1])}))
    says(refusal(folder))


def test_a_tensor_in_two_files_is_refused(folder):
    shutil.copy(folder / "model.safetensors", folder / "model-1.safetensors")
    says(refusal(folder))


def test_a_file_that_is_cut_short_is_refused(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    says(refusal(folder))


def test_a_link_out_of_the_folder_is_refused_and_one_inside_is_followed(folder, tmp_path):
    secret = tmp_path / "secret.json"
    secret.write_text("{}")
    (folder / "generation_config.json").symlink_to(secret)
    assert "generation_config.json is a link to" in refusal(folder)
    (folder / "generation_config.json").unlink()
    (folder / "kept").mkdir()
    (folder / "tokenizer.json").rename(folder / "kept/t.json")
    (folder / "tokenizer.json").symlink_to("kept/t.json")
    assert resolve(str(folder)).files[-1].path == "tokenizer.json"


def test_a_snapshot_of_the_hubs_cache_may_link_to_its_blobs_only(folder, tmp_path):
    snapshot = tmp_path / "models--a--b/snapshots/0"
    snapshot.mkdir(parents=True)
    shutil.copytree(folder, snapshot.parent.parent / "blobs")
    for path in folder.iterdir():
        (snapshot / path.name).symlink_to(f"../../blobs/{path.name}")
    assert from_folder("a/b", snapshot).weights.bytes == ALL
    (snapshot / "config.json").unlink()
    (snapshot / "config.json").symlink_to(folder / "config.json")
    with pytest.raises(UserError, match="is a link to"):
        from_folder("a/b", snapshot)


def test_a_dangling_or_circular_link_is_refused(folder):
    (folder / "merges.txt").symlink_to("merges.txt")
    assert "merges.txt" in refusal(folder)
    (folder / "merges.txt").unlink()
    (folder / "merges.txt").symlink_to("nowhere")
    assert "merges.txt" in refusal(folder)


def test_a_header_that_names_no_tensors_is_a_model_without_weights(folder):
    (folder / "model.safetensors").write_bytes(packed({}))
    says(refusal(folder))


# Headers


def refusal_of(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    return refused(read_tensors, path, code=ExitCode.MODEL)


def tensor(**changes: object) -> dict[str, object]:
    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}
    return {key: value for key, value in entry.items() if value is not None}


def test_a_file_that_mlx_wrote_is_read(tmp_path):
    path = tmp_path / "model.safetensors"
    arrays = {
        "a": mx.zeros((3, 5), mx.bfloat16),
        "b": mx.zeros((7,), mx.uint32),
        "c": mx.array(1.0),
    }
    mx.save_safetensors(str(path), arrays, metadata={"format": "mlx"})
    by_name = {read_tensor.name: read_tensor for read_tensor in read_tensors(path)}
    assert {name: tensor.bytes for name, tensor in by_name.items()} == {
        name: array.nbytes for name, array in arrays.items()
    }
    assert by_name["a"] == Tensor("a", "BF16", 30, (3, 5))


def test_a_tensor_may_be_empty(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(packed({"a": tensor(shape=[0, 4], data_offsets=[0, 0])}))
    assert read_tensors(path) == (Tensor("a", "F32", 0, (0, 4)),)


@pytest.mark.parametrize("dtype", sorted(BYTES))
def test_every_type_that_is_accepted_is_one_that_mlx_loads_in_that_size(tmp_path, dtype):
    path = tmp_path / "model.safetensors"
    size = 2 * BYTES[dtype]
    path.write_bytes(packed({"a": tensor(dtype=dtype, data_offsets=[0, size])}, size))
    assert mx.load(str(path))["a"].nbytes == read_tensors(path)[0].bytes == size


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "model.safetensors is not a safetensors file: it has only 0 bytes"),
        (b"1234567", "it has only 7 bytes"),
        (b"\xff" * 16, "but at most 100 MiB are allowed"),
        (struct.pack("<Q", (100 << 20) + 1), "but at most 100 MiB are allowed"),
        (struct.pack("<Q", 100) + b"{}", "would be 100 bytes long, but the file has 10"),
        (struct.pack("<Q", 0) + b"{}", "would be 0 bytes long"),
        (packed(b"[]"), "the header of model.safetensors is not a JSON object"),
        (packed(b"{x}"), "the header of model.safetensors is not valid JSON"),
        (packed(b'{"a": ' + b"[" * 99_999 + b"}"), "is not valid JSON"),
        (packed(b'{"a": {}, "a": {}}'), "of model.safetensors has the key 'a' twice"),
        (packed(b'{"a": {"dtype": "F32", "dtype": "F16"}}'), "has the key 'dtype' twice"),
    ],
)
def test_a_malformed_header_is_refused(tmp_path, content, what):
    assert what in refusal_of(tmp_path / "model.safetensors", content)


@pytest.mark.parametrize(
    ("entry", "what"),
    [
        ([], "is a list of length 0 but should be an object"),
        (tensor(dtype="F4"), 'has the dtype "F4", which MLX cannot load'),
        (tensor(dtype=None), "has the dtype null"),
        (tensor(shape=[-2]), "has a shape that is not a list of whole numbers"),
        (tensor(shape=[2.0]), "has a shape that is not a list of whole numbers"),
        (tensor(shape=[True, 2]), "has a shape that is not a list of whole numbers"),
        (tensor(shape=[float("inf")]), "has a shape that is not a list of whole numbers"),
        (tensor(shape=[1] * 100), "has a shape that is not a list of whole numbers"),
        (tensor(shape=[10**30]), "has a shape that is not a list of whole numbers"),
        (tensor(data_offsets=[8, 0]), "has no data_offsets, or invalid ones"),
        (tensor(data_offsets=[0]), "has no data_offsets, or invalid ones"),
        (tensor(data_offsets=None), "has no data_offsets, or invalid ones"),
        (
            tensor(data_offsets=[1, 9], shape=[2]),
            "is incomplete: 8 of 9 bytes of weights are there",
        ),
        (tensor(shape=[3]), "has a number of bytes that does not match its shape and dtype"),
    ],
)
def test_a_tensor_that_cannot_be_is_named(tmp_path, entry, what):
    says(refusal_of(tmp_path / "model.safetensors", packed({"a\nb": entry}, 8)))


def test_tensors_that_share_bytes_are_named_and_all_problems_told(tmp_path):
    document = {"a": tensor(), "b": tensor(data_offsets=[4, 12]), "c": tensor(dtype="X")}
    says(refusal_of(tmp_path / "model.safetensors", packed(document, 12)))


def test_a_file_that_is_not_there_is_named(tmp_path):
    says(refused(read_tensors, tmp_path / "model.safetensors", code=ExitCode.MODEL))


VALUES = st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=4)
ROWS = st.fixed_dictionaries(
    {},
    optional={
        "dtype": VALUES | st.sampled_from(sorted(BYTES)),
        "shape": VALUES | st.lists(VALUES | st.integers(0, 9), max_size=3),
        "data_offsets": VALUES | st.lists(VALUES | st.integers(0, 40), max_size=3),
    },
)


@settings(max_examples=300)
@given(st.dictionaries(st.text(max_size=4), VALUES | ROWS, max_size=4))
def test_any_header_is_read_within_the_file_or_refused(document):
    header = json.dumps(document).encode()
    size = LENGTH + len(header) + 32
    try:
        tensors = parse_header(header, size, "model.safetensors", "x")
    except UserError as error:
        tensors = ()
        str(error).encode()
    assert sum(tensor.bytes for tensor in tensors) <= 32


# Weights


NAMES = {mx.bfloat16: "BF16", mx.float16: "F16", mx.float32: "F32", mx.uint32: "U32"}
MIXTURES = ["afmoe", "bailing_moe", "glm4_moe", "gpt_oss", "granitemoehybrid", "lfm2_moe"]
MIXTURES += ["mixtral", "minimax", "nemotron_h", "olmoe", "phimoe", "qwen3_moe", "qwen3_next"]


def tensors_of(model) -> list[Tensor]:
    return [
        Tensor(name, NAMES[array.dtype], array.nbytes, array.shape)
        for name, array in tree_flatten(model.parameters())
    ]


def size(module) -> int:
    return sum(array.nbytes for _, array in tree_flatten(module.parameters()))


def embedding(model):
    tables = {n: m for n, m in model.named_modules() if isinstance(m, nn.Embedding)}
    return next(m for name, m in tables.items() if not name.endswith("per_layer"))


@pytest.mark.parametrize("model_type", sorted(set(swift_models()) - {"bitnet"}))
def test_the_embedding_and_the_head_of_every_family_are_found(model_type):
    model = small_model(model_type)
    weights = weigh(tensors_of(model))
    assert weights.bytes == size(model)
    assert weights.embedding_bytes == size(embedding(model))
    assert weights.skipped_bytes == 0
    heads = [m for name, m in model.named_modules() if name.endswith(("lm_head", "output"))]
    head = sum(size(m) for m in heads if m.weight.shape[0] == embedding(model).weight.shape[0])
    assert weights.head_bytes == head
    assert weights.tied_embeddings == (head == 0)
    assert weights.dtype == "float32"


@pytest.mark.parametrize("model_type", MIXTURES)
def test_of_the_experts_of_every_mixture_the_chosen_ones_are_read(model_type):
    model = small_model(model_type)
    weights = weigh(tensors_of(model), experts=4, experts_per_token=2)
    experts = [
        m for name, m in model.named_modules() if type(m).__name__ in ("SwitchGLU", "SwitchMLP")
    ]
    assert experts
    assert weights.expert_bytes == sum(map(size, experts))
    unread = weights.expert_bytes // 2 + (
        0 if weights.tied_embeddings else weights.embedding_bytes
    )
    assert weights.bytes_per_token == weights.bytes - unread


def test_a_quantized_model_is_weighed_as_it_is_stored():
    model = small_model("llama", mx.bfloat16, num_hidden_layers=3)
    nn.quantize(model, group_size=32, bits=4)
    weights = weigh(tensors_of(model))
    assert weights.bytes == size(model)
    assert (
        weights.embedding_bytes == size(model.model.embed_tokens) == 60 * (64 // 2 + 2 * 2 * 2)
    )
    assert weights.dtype == "bfloat16"


def test_a_table_that_is_the_head_is_read_whole_and_another_one_is_not():
    table, head = (
        Tensor("model.embed_tokens.weight", "F16", 100),
        Tensor("lm_head.x", "F16", 70),
    )
    rest = Tensor("model.layers.0.mlp.up_proj.weight", "F16", 1000)
    tied, apart = weigh([table, rest]), weigh([table, rest, head])
    assert (tied.tied_embeddings, tied.bytes, tied.bytes_per_token) == (True, 1100, 1100)
    assert (apart.tied_embeddings, apart.bytes, apart.bytes_per_token) == (False, 1170, 1070)


def test_of_a_table_for_each_layer_a_token_reads_a_row():
    table = Tensor("language_model.model.embed_tokens_per_layer.scales", "F16", 100)
    weights = weigh([table, Tensor("model.norm.weight", "F16", 4)])
    assert (weights.bytes, weights.bytes_per_token, weights.embedding_bytes) == (104, 4, 0)


@pytest.mark.parametrize(
    "name",
    [
        "vision_tower.layers.0.weight",
        "model.visual.blocks.0.weight",
        "multi_modal_projector.weight",
        "mtp.layers.0.weight",
        "model.layers.0.self_attn.rotary_emb.inv_freq",
    ],
)
def test_only_tensors_of_the_language_model_are_loaded(name):
    weights = weigh([Tensor("model.norm.weight", "F16", 4), Tensor(name, "F32", 40)])
    assert (weights.bytes, weights.skipped_bytes, weights.bytes_per_token) == (4, 40, 4)


def test_shared_experts_are_read_whole():
    shared = Tensor("model.layers.0.mlp.shared_experts.up_proj.weight", "F16", 10)
    expert = Tensor("model.layers.0.mlp.switch_mlp.up_proj.weight", "F16", 40)
    weights = weigh([shared, expert], experts=4, experts_per_token=1)
    assert (weights.expert_bytes, weights.bytes_per_token) == (40, 20)


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab\nsize 12345\n"


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_a_git_lfs_pointer_is_refused_with_the_command_that_fetches_the_file(folder, name):
    (folder / name).write_text(POINTER)
    says(refusal(folder))


@pytest.mark.parametrize(
    "name", ["model-q4.gguf", "pytorch_model.bin", "consolidated.00.pth", "weights.safetensors"]
)
def test_weights_in_another_form_are_named_with_what_to_do(folder, name):
    (folder / "model.safetensors").rename(folder / name)
    says(refusal(folder))


@pytest.mark.parametrize("name", ["model.safetensors", "model-q4.gguf"])
def test_a_file_given_as_a_model_is_refused_with_its_folder(tmp_path, monkeypatch, name):
    folder_of(tmp_path / "mine")
    (tmp_path / "mine" / name).touch()
    monkeypatch.chdir(tmp_path)
    says(refused(resolve, f"mine/{name}", code=ExitCode.MODEL))
