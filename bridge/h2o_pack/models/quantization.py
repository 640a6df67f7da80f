"""How a model's weights are quantized, by its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from h2o_pack.errors import Problems, shown

BITS = (2, 3, 4, 5, 6, 8)
GROUPS = (16, 32, 64, 128)
# mlx_lm.utils.load_model: methods that it quantizes at once or repacks
METHODS = {"mxfp4": (4, 32), "compressed-tensors": (4, 32)}
REMEDY = "Choose a model converted with mlx_lm.convert."


@dataclass(frozen=True)
class Quantization:
    """Bits of a weight and elements of a group; 0 for weights that are not quantized.

    Layers may have settings of their own, which the weights' sizes then show.
    """

    bits: int = 0
    group_size: int = 0


def read_quantization(
    document: Mapping[str, Any], text: Mapping[str, Any], problems: Problems
) -> Quantization:
    """Read "quantization" as mlx_lm.convert writes it, or a method's own settings."""
    own = document.get("quantization")
    if own is not None:
        return affine(own, "quantization", problems)
    given = document.get("quantization_config")
    if given is None:
        given = text.get("quantization_config")
    if given is None:
        return Quantization()
    method = given.get("quant_method") if isinstance(given, dict) else None
    if isinstance(given, dict) and method is None and "bits" in given:
        return affine(given, "quantization_config", problems)
    if method == "bitnet":
        return Quantization(2, 0)
    if isinstance(method, str) and method in METHODS:
        return Quantization(*METHODS[method])
    problems.add(
        f"quantization_config has quant_method {shown(method)}, which mlx-swift-lm cannot load",
        REMEDY,
    )
    return Quantization()


def affine(given: object, key: str, problems: Problems) -> Quantization:
    """Read {"bits": ..., "group_size": ...}."""
    if not isinstance(given, dict):
        problems.add(f"{key} is {shown(given)} but should be an object", REMEDY)
        return Quantization()
    return Quantization(
        one_of(given, "bits", BITS, key, problems),
        one_of(given, "group_size", GROUPS, key, problems),
    )


def one_of(
    given: Mapping[str, Any], name: str, allowed: tuple[int, ...], key: str, problems: Problems
) -> int:
    """Return a value that MLX can compute with."""
    value = given.get(name)
    if isinstance(value, int) and not isinstance(value, bool) and value in allowed:
        return value
    listed = ", ".join(map(str, allowed))
    problems.add(f"{key}.{name} is {shown(value)} but should be one of {listed}", REMEDY)
    return 0
