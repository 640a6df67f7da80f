"""What a model's tensors add up to, compared with models that mlx_lm makes."""

from __future__ import annotations

import mlx.core as mx
import pytest
from mlx import nn
from mlx.utils import tree_flatten

from h2o_pack.facts import swift_models
from h2o_pack.model import Tensor
from h2o_pack.models.files import weigh
from tests.bridge.models.small_configs import small_model

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
    found = weigh(tensors_of(model))
    assert found.bytes == size(model)
    assert found.embedding_bytes == size(embedding(model))
    assert found.skipped_bytes == 0
    heads = [m for name, m in model.named_modules() if name.endswith(("lm_head", "output"))]
    head = sum(size(m) for m in heads if m.weight.shape[0] == embedding(model).weight.shape[0])
    assert found.head_bytes == head
    assert found.tied_embeddings == (head == 0)
    assert found.dtype == "float32"


@pytest.mark.parametrize("model_type", MIXTURES)
def test_of_the_experts_of_every_mixture_the_chosen_ones_are_read(model_type):
    model = small_model(model_type)
    found = weigh(tensors_of(model), experts=4, experts_per_token=2)
    experts = [
        m for name, m in model.named_modules() if type(m).__name__ in ("SwitchGLU", "SwitchMLP")
    ]
    assert experts
    assert found.expert_bytes == sum(map(size, experts))
    unread = found.expert_bytes // 2 + (0 if found.tied_embeddings else found.embedding_bytes)
    assert found.bytes_per_token == found.bytes - unread


def test_a_quantized_model_is_weighed_as_it_is_stored():
    model = small_model("llama", mx.bfloat16, num_hidden_layers=3)
    nn.quantize(model, group_size=32, bits=4)
    found = weigh(tensors_of(model))
    assert found.bytes == size(model)
    assert found.embedding_bytes == size(model.model.embed_tokens) == 60 * (64 // 2 + 2 * 2 * 2)
    assert found.dtype == "bfloat16"


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
    found = weigh([table, Tensor("model.norm.weight", "F16", 4)])
    assert (found.bytes, found.bytes_per_token, found.embedding_bytes) == (104, 4, 0)


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
def test_what_is_not_of_the_language_model_is_not_loaded(name):
    found = weigh([Tensor("model.norm.weight", "F16", 4), Tensor(name, "F32", 40)])
    assert (found.bytes, found.skipped_bytes, found.bytes_per_token) == (4, 40, 4)


def test_shared_experts_are_read_whole():
    shared = Tensor("model.layers.0.mlp.shared_experts.up_proj.weight", "F16", 10)
    chosen = Tensor("model.layers.0.mlp.switch_mlp.up_proj.weight", "F16", 40)
    found = weigh([shared, chosen], experts=4, experts_per_token=1)
    assert (found.expert_bytes, found.bytes_per_token) == (40, 20)
