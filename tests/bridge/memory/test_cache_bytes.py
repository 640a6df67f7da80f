import random
import warnings

import mlx.core as mx
import pytest
from mlx_lm.models.cache import CacheList

import h2o_py
from h2o_pack.memory.cache_bytes import LayerArchive
from h2o_pack.memory.storages import STORAGES, storage_of
from h2o_pack.memory.terms import ARCHIVE, KV, LEDGER, STATE, MemoryPlan
from h2o_pack.model import Model, Weights
from h2o_pack.models.config import describe
from h2o_pack.plan.workload import Workload
from h2o_py.budgets import Budgets, LayerBudget
from h2o_py.config import H2OConfig, H2ORecall
from h2o_py.models import make_h2o_cache
from h2o_py.policy_fields import SEGMENT_TOKENS
from tests.bridge.models.small_configs import VOCABULARY, small_config, small_model
from tests.nightly import nightly_except

FAMILIES = (
    "qwen3", "gemma3_text", "lfm2", "qwen3_moe", "gpt_oss", "falcon_h1", "qwen3_next", "llama",
    "phi3", "granitemoehybrid", "mimo_v2_flash", "smollm3", "nemotron_h", "baichuan_m1",
    "jamba", "gemma3", "olmo2", "mixtral", "afmoe", "glm4",
)  # fmt: skip
GROUP = 32


@pytest.fixture(autouse=True)
def _routed():
    h2o_py.install_routing()
    yield
    h2o_py.remove_routing()


def held(caches) -> int:
    """Bytes of all arrays that the caches keep."""
    total = 0
    for member in caches:
        if isinstance(member, CacheList):
            total += held(member.caches)
        elif isinstance(member, h2o_py.H2OKVCache):
            total += member.nbytes
        elif hasattr(member, "keys"):
            total += member.keys.nbytes + member.values.nbytes
        else:
            total += sum(array.nbytes for array in member.cache if array is not None)
    return total


def read(model, caches, tokens: int, chunk: int) -> None:
    """A prompt in chunks, its last tokens one by one."""
    ids = mx.random.randint(0, VOCABULARY, (1, tokens))
    at = 0
    while at < tokens:
        size = chunk if at + chunk <= tokens - 3 else 1
        mx.eval(model(ids[:, at : at + size], cache=caches))
        at += size


def group_of(document, kv: str) -> int:
    return storage_of(kv, describe(document, "config.json").config).group_size


def planned(document, caches_of, kv: str, tokens: int) -> MemoryPlan:
    config = describe(document, "config.json").config
    small = Model("small", "", config, Weights(0, True, 0), (), None)
    caches = tuple(
        caches_of(i) if layer.kind == "full" else None for i, layer in enumerate(config.layers)
    )
    return Workload(small, caches, kv, tokens, 512).plan("cpu")


@pytest.mark.parametrize("number", nightly_except((0, 6, 11), range(20)))
def test_kept_bytes_are_those_that_real_caches_of_random_models_allocate(number):
    rng = random.Random(number)  # noqa: S311  the same models each time
    family, kv = FAMILIES[number], list(STORAGES)[number % len(STORAGES)]
    changes = {}
    if family in ("qwen3", "llama", "smollm3", "olmo2", "mixtral", "glm4"):
        kv_heads = rng.choice([1, 2, 4])
        changes = {
            "num_key_value_heads": kv_heads,
            "num_attention_heads": 4,
            "num_hidden_layers": rng.randint(2, 5),
        }
        if family in ("qwen3", "mixtral"):
            changes["head_dim"] = 32 if family == "mixtral" else rng.choice([32, 64, 96])
        if family in ("olmo2", "glm4", "llama", "smollm3"):
            changes["hidden_size"], changes["head_dim"] = 128, 32
    document = small_config(family, torch_dtype="float32", **changes)
    model = small_model(family, **changes)
    if any(
        dim % GROUP
        for layer in describe(document, "").config.layers
        if layer.kind == "full"
        for dim in (layer.key_dim, layer.value_dim)
    ):
        kv = "16"
    size = rng.randint(40, 300)
    tokens = rng.choice([size + 37, 2 * size + 5, 20 + size // 3])
    config = H2OConfig(size)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        caches = make_h2o_cache(model, config, kv=kv, group_size=group_of(document, kv))
        read(model, caches, tokens, rng.choice([50, 64, 100]))
    plan = planned(document, lambda _: config, kv, tokens)
    assert held(caches) == plan.of(KV, STATE, LEDGER)


@pytest.mark.parametrize("kv", nightly_except(("k8v4", "heavy=4,recent=8"), STORAGES))
def test_every_storage_and_budgets_a_layer_count_the_same(kv):
    document = small_config("qwen3", torch_dtype="float32", head_dim=64)
    model = small_model("qwen3", head_dim=64)
    common = H2OConfig(200)
    layers = (LayerBudget(40, 150), None, LayerBudget(150, 30), LayerBudget(60, 40, 120))
    budgets = Budgets(layers)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        group = group_of(document, kv)
        caches = make_h2o_cache(model, common, kv=kv, group_size=group, budgets=budgets)
        layers = [budgets.config_of(i, common) for i in range(4)]
        read(model, caches, 300, 64)
    plan = planned(document, layers.__getitem__, kv, 300)
    assert held(caches) == plan.of(KV, STATE, LEDGER)


ARCHIVES = [(kv, bits) for kv in ("16", "k8v4", "heavy=4,recent=8") for bits in (4, 8, 16)]


@pytest.mark.parametrize(("kv", "bits"), nightly_except(ARCHIVES[::4], ARCHIVES))
def test_an_archive_takes_what_its_tokens_take(kv, bits):
    document = small_config("gemma3_text", torch_dtype="float32", head_dim=64)
    model = small_model("gemma3_text", head_dim=64)
    common = H2OConfig(96, recall=H2ORecall(archive_bits=bits))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        caches = make_h2o_cache(model, common, kv=kv, group_size=group_of(document, kv))
        read(model, caches, 300, 64)
    plan = planned(document, lambda _: common, kv, 300)
    layers = describe(document, "config.json").config.layers
    # The caches count newest tokens as if they were packed.
    unpacked = sum(
        archive.newest - 300 % SEGMENT_TOKENS * archive.token_bytes
        for layer in layers
        if layer.kind == "full" and (archive := LayerArchive(layer, bits, 4))
    )
    assert held(caches) == plan.of(KV, STATE, LEDGER, ARCHIVE) - unpacked
