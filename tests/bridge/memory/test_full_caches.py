"""A cache that keeps every token takes less memory in few bits than in 16, for every model."""

import pytest

from h2o_pack.models.catalogue import as_model, catalogue
from h2o_pack.plan.workload import workload_of
from h2o_pack.spec import CacheSpec
from tests.nightly import nightly_except

MODELS = {entry.name: model for entry in catalogue() if (model := as_model(entry))}
EVERYDAY = ["Qwen3-0.6B-4bit", "Qwen3-4B-4bit", "gemma-4-e4b-it-4bit", "Qwen3.5-2B-4bit"]
TOKENS = (256, 4096, 16384)


@pytest.mark.parametrize("name", nightly_except(EVERYDAY, MODELS))
def test_fewer_bits_take_less_memory_at_every_context(name):
    model = MODELS[name]
    for tokens in TOKENS:
        if tokens > model.config.context:
            continue
        workload = workload_of(model, CacheSpec(context=tokens))
        plain, *fewer = [
            workload.with_kv(kv).plan("iphone").total for kv in ("16", "8", "k8v4", "4")
        ]
        assert max(fewer) < plain, tokens
