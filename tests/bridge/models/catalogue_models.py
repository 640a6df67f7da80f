"""mlx_lm's models of the catalogue, quantized as mlx_lm.convert does it, with no values.

MLX computes nothing before it must, so the shapes of a model of any size cost no memory.
"""

from __future__ import annotations

import importlib
from typing import Any

import mlx.core as mx
from mlx_lm.utils import quantize_model

from h2o_pack.architectures import FAMILIES, Wrapped
from h2o_pack.architectures.fields import keys_of
from h2o_pack.facts import KnownModel, architectures
from h2o_pack.models.config import read_like
from tests.bridge.models.small_configs import small_config


def quantized(known: KnownModel) -> Any:
    """Make mlx_lm's model of an entry: weights in bfloat16, or 4 bits in groups of 64."""
    document = config_of(known)
    model_type = document["model_type"]
    module = importlib.import_module(f"mlx_lm.models.{architectures()[model_type].mlx_lm}")
    model = module.Model(module.ModelArgs.from_dict(document))
    casts = getattr(model, "cast_predicate", lambda _name: True)
    model.update(cast(model.parameters(), casts))
    return quantize_model(model, {}, 64, 4)[0]


def cast(parameters: Any, casts: Any) -> Any:
    """Cast what mlx_lm.convert casts."""
    from mlx.utils import tree_map_with_path

    return tree_map_with_path(
        lambda name, value: value.astype(mx.bfloat16) if casts(name) else value, parameters
    )


def config_of(known: KnownModel) -> dict[str, Any]:
    """Return a config.json that mlx_lm can read: what the plan does not read is made up."""
    stated = dict(known.config)
    model_type = stated["model_type"]
    family = FAMILIES[model_type]
    reader = family.reader if isinstance(family, Wrapped) else family
    facts = architectures()[read_like(model_type)]
    read = {key for key, _, _ in keys_of(reader, facts).values()}
    made_up = small_config(model_type)
    if "text_config" in stated:
        made_up, inner = made_up["text_config"], stated.pop("text_config")
        text = {key: value for key, value in made_up.items() if key not in read} | inner
        return {**stated, "text_config": text}
    return {key: value for key, value in made_up.items() if key not in read} | stated
