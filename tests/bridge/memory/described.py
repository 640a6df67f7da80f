"""Models as the catalogue's numbers describe them, and plans of them."""

from typing import Any

from h2o_pack.model import Layer, Model, ModelConfig, Weights
from h2o_pack.plan.workload import Workload


def model(
    name: str = "Qwen3-4B-4bit",
    *,
    layers: tuple[Layer, ...] = (Layer("full", 8, 128, 128),) * 36,
    weights: int = 2_263_022_529,
    **config: Any,
) -> Model:
    """Qwen3-4B in 4 bits, but for what is given."""
    shapes = {
        "model_type": "qwen3", "heads": 32, "hidden_size": 2560, "intermediate_size": 9728,
        "vocabulary": 151936, "context": 40960, "dtype": "bfloat16", "bits": 4,
        "group_size": 64,
    }  # fmt: skip
    config_of_model = ModelConfig(layers=layers, **{**shapes, **config})
    return Model(name, "", config_of_model, Weights(weights, True, weights), (), None)


def request(
    workload_model: Model | None = None, max_kv: int = 512, **settings: Any
) -> Workload:
    """The model with the same evicting cache in every full-attention layer."""
    return Workload(workload_model or model(), (), **settings).with_max_kv(max_kv)
