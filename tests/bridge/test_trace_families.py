"""Traces of models in which only some layers evict."""

from __future__ import annotations

import mlx.core as mx
import pytest

from h2o_pack.models.config import describe
from h2o_pack.parity import op
from h2o_pack.parity.trace import Case, Trace, record_case
from h2o_py import H2OConfig
from tests.bridge.models.small_configs import VOCABULARY, small_config, small_model


@pytest.mark.parametrize("model_type", ["gemma3_text", "lfm2", "falcon_h1", "nemotron_h"])
def test_the_layers_that_evict_are_recorded_and_the_others_keep_their_caches(
    model_type, tmp_path
):
    tokens = mx.random.randint(0, VOCABULARY, (70,), key=mx.random.key(1)).tolist()
    case = Case("float32", "float32", H2OConfig(16))
    recorded = record_case(small_model(model_type), tokens, case, tmp_path)
    config = describe(small_config(model_type), "config.json").config
    evicting = len(config.evicting)
    assert recorded.layers == tuple(sorted({0, evicting // 2, evicting - 1}))
    (result,) = op.compare(Trace(tmp_path, (recorded,)))
    assert result.first_difference is None
    assert result.comparisons > 0
