"""mlx_lm's models of the catalogue, quantized as mlx_lm.convert does it, with no values.

MLX computes nothing before it must, so the shapes of a model of any size cost no memory.
"""

from __future__ import annotations

import copy
from typing import Any

import mlx.core as mx
from mlx_lm import utils

from h2o_pack.facts import KnownModel
from h2o_pack.models.built import cast, checked_arguments
from tests.bridge.models.small_configs import small_config


def quantized(known: KnownModel) -> Any:
    """Make mlx_lm's model of an entry: weights in bfloat16, or 4 bits in groups of 64."""
    config = copy.deepcopy(known.config)  # mlx_lm changes what it reads
    model_class, arguments = utils._get_classes(config)
    with checked_arguments(config, fill=True):
        model = model_class(arguments.from_dict(config))
    cast(model, mx.bfloat16)
    return utils.quantize_model(model, {}, 64, 4)[0]


def config_of(known: KnownModel) -> dict[str, Any]:
    """Return a config.json that mlx_lm can read: what shapes nothing is made up."""
    made_up = small_config(known.config["model_type"])
    if "text_config" in known.config:
        text = shapeless(made_up["text_config"]) | known.config["text_config"]
        return {**known.config, "text_config": text}
    return shapeless(made_up) | known.config


def shapeless(document: dict[str, Any]) -> dict[str, Any]:
    """Return the values that are no sizes."""
    kinds = (bool, float, str, type(None))
    return {key: value for key, value in document.items() if isinstance(value, kinds)}
