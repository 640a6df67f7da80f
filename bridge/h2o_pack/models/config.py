"""Reads a model's config.json into the values that the later stages need.

The caches of the layers come from mlx_lm's own model, which another process builds (`built`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from h2o_pack.errors import Problems, nearest, shown
from h2o_pack.facts import (
    FOLDER,
    SwiftModel,
    pins,
    refused_types,
    refused_windows,
    swift_models,
)
from h2o_pack.files.text import read_object
from h2o_pack.model import DTYPES, ModelConfig
from h2o_pack.models.trial import attempt

SHAPES = FOLDER / "shapes.json"
DEFAULT_DTYPE = "bfloat16"
BITS = (2, 3, 4, 5, 6, 8)
GROUPS = (16, 32, 64, 128)
# mlx_lm.utils.load_model quantizes or repacks weights of these methods: bits, group size.
METHODS = {"mxfp4": (4, 32), "compressed-tensors": (4, 32), "bitnet": (2, 0)}
CONVERTED = "Choose a model converted with mlx_lm.convert."
ANOTHER_FAMILY = "Choose a model of another family."


@dataclass(frozen=True)
class Described:
    """A configuration's shapes, and notes for the user."""

    config: ModelConfig
    remarks: tuple[str, ...]


def read_config(path: Path) -> ModelConfig:
    """Read and check config.json; UserError contains all errors."""
    return describe(read_object(path), str(path)).config


def describe(
    document: Mapping[str, Any],
    where: str,
    *,
    stored_dtype: str = "",
    partial: bool = False,
) -> Described:
    """Make a description from the content of config.json.

    where: the file, for errors. stored_dtype: the dtype of the tensors, which overrides the
    config's, as in mlx_lm. partial: the document may lack keys that change no shape, such as
    epsilons. Raises UserError: all errors in the document.
    """
    problems = Problems(where)
    model_type = document.get("model_type")
    if not isinstance(model_type, str):
        problems.fail("config.json has no model_type")
    if document.get("model_file") is not None:
        problems.add(
            "config.json names a model_file, which is Python code of the model",
            "h2o-pack runs no code of models. Choose another model.",
        )
    swift = swift_models().get(model_type)
    if swift is None:
        fail_unknown(model_type, problems)
    problems.refuse()
    text = text_of(document, swift, problems)
    bits, group_size = read_quantization(document, text, problems)
    dtype = stored_dtype or read_dtype(document, text, problems)
    shapes = known_shapes().get(digest(document, dtype))
    if shapes is None:
        with problems.caught():
            shapes = attempt("describe", where, config=document, dtype=dtype, fill=partial)
    # mlx_lm may use caches without a window for layers with sliding attention
    kinds = [layer["kind"] for layer in (shapes or {}).get("layers", ())]
    kinds += text["layer_types"] if isinstance(text.get("layer_types"), list) else []
    reason = refused_windows().get(model_type)
    if reason and {"sliding", "sliding_attention"}.intersection(kinds):
        problems.add(f"this model has sliding-window layers, {reason}", ANOTHER_FAMILY)
    if shapes is not None and "full" not in kinds:
        problems.add(
            f'no layer of this "{model_type}" model attends to the whole context, so H2O '
            "cannot bound its caches",
            "Choose a model with full-attention layers.",
        )
    problems.refuse()
    own = {"model_type": model_type, "dtype": dtype, "bits": bits, "group_size": group_size}
    config = msgspec.convert({**(shapes or {}), **own}, ModelConfig)
    return Described(config, () if swift.scores else (no_scores(swift),))


def no_scores(swift: SwiftModel) -> str:
    """Return the note for a model whose caches get no scores in Swift."""
    return (
        f"mlx-swift-lm's {swift.swift}.swift computes attention outside of the cache, so on "
        "the device the cache gets no scores: it keeps only the first and the newest tokens."
    )


@cache
def known_shapes() -> Mapping[str, Mapping[str, Any]]:
    """Return the shapes of the catalogue's models by `digest`; tools.shapes writes them."""
    shapes: dict[str, dict[str, Any]] = json.loads(SHAPES.read_bytes())
    return {
        key: {**value, "layers": [layer for n, layer in value["layers"] for _ in range(n)]}
        for key, value in shapes.items()
    }


def digest(document: Mapping[str, Any], dtype: str) -> str:
    """Return the key of a configuration among the known shapes."""
    text = json.dumps([document, dtype], sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def fail_unknown(model_type: str, problems: Problems) -> NoReturn:
    """Raise the errors so far, and one for a type that is refused or unknown."""
    supported = f"Supported: {', '.join(sorted(swift_models()))}."
    reason = why_refused(model_type)
    if reason:
        problems.fail(
            f"model_type {shown(model_type)} is not supported: {reason}",
            f"{ANOTHER_FAMILY} {supported}",
        )
    problems.fail(
        f"model_type {shown(model_type)} is not supported",
        f"{nearest(model_type[:100], swift_models())}{ANOTHER_FAMILY} {supported}",
    )


def why_refused(model_type: str) -> str:
    """Return why a model type of mlx_lm or mlx-swift-lm is refused; "" if it is not."""
    if reason := refused_types().get(model_type):
        return reason
    if model_type not in swift_models() and model_type in types_of_mlx_lm():
        version = pins()["mlx-swift-lm"].version
        return f"mlx-swift-lm {version} has no language model of this type"
    return ""


@cache
def types_of_mlx_lm() -> tuple[str, ...]:
    """Return the names of mlx_lm's files that contain a model, without importing them."""
    spec = find_spec("mlx_lm")
    folders = (spec.submodule_search_locations or ()) if spec else ()
    files = (path for folder in folders for path in Path(folder, "models").glob("*.py"))
    return tuple(sorted(f.stem for f in files if "\nclass Model(" in f.read_text("utf-8")))


def text_of(
    document: Mapping[str, Any], swift: SwiftModel, problems: Problems
) -> Mapping[str, Any]:
    """Return the object that describes the language model; add an error for a wrong type."""
    text = document.get("text_config")
    if not isinstance(text, dict):
        return document
    inner = text.get("model_type")
    if swift.inner and inner is not None and inner not in swift.inner:
        problems.fail(
            f"text_config.model_type is {shown(inner)} but should be {', '.join(swift.inner)}",
            "Choose another model.",
        )
    return text


def read_dtype(document: Mapping[str, Any], text: Mapping[str, Any], problems: Problems) -> str:
    """Return the dtype that the configuration states."""
    for table in (document, text):
        for key in ("torch_dtype", "dtype"):
            value = table.get(key)
            if value is None:
                continue
            if isinstance(value, str) and value in DTYPES:
                return value
            problems.add(f"{key} is {shown(value)} but should be {', '.join(DTYPES)}")
            return DEFAULT_DTYPE
    return DEFAULT_DTYPE


def read_quantization(
    document: Mapping[str, Any], text: Mapping[str, Any], problems: Problems
) -> tuple[int, int]:
    """Return bits of a weight and elements of a group, 0 for weights that are not quantized.

    Reads "quantization" as mlx_lm.convert writes it, or a method's own settings. Layers may
    have their own settings, which the weights' sizes then show.
    """
    own = document.get("quantization")
    if own is not None:
        return affine(own, "quantization", problems)
    quantization = document.get("quantization_config")
    if quantization is None:
        quantization = text.get("quantization_config")
    if quantization is None:
        return 0, 0
    method = quantization.get("quant_method") if isinstance(quantization, dict) else None
    if isinstance(quantization, dict) and method is None and "bits" in quantization:
        return affine(quantization, "quantization_config", problems)
    if isinstance(method, str) and method in METHODS:
        return METHODS[method]
    problems.add(
        f"quantization_config has quant_method {shown(method)}, which mlx-swift-lm cannot load",
        CONVERTED,
    )
    return 0, 0


def affine(value: object, key: str, problems: Problems) -> tuple[int, int]:
    """Return bits and group size from a table with both; add errors for invalid values."""
    if not isinstance(value, dict):
        problems.add(f"{key} is {shown(value)} but should be an object", CONVERTED)
        return 0, 0
    for name, allowed in (("bits", BITS), ("group_size", GROUPS)):
        number = value.get(name)
        if not isinstance(number, int) or number not in allowed:
            expected = ", ".join(map(str, allowed))
            what = f"{key}.{name} is {shown(number)} but should be one of {expected}"
            problems.add(what, CONVERTED)
    return value.get("bits", 0), value.get("group_size", 0)
