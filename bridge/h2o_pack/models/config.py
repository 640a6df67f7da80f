"""Reads a model's config.json into what the later stages need to know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from h2o_pack.architectures import FAMILIES, Wrapped
from h2o_pack.architectures.decoder import Decoder
from h2o_pack.architectures.fields import read
from h2o_pack.architectures.model import DTYPES, ModelConfig
from h2o_pack.errors import Problems, nearest, shown
from h2o_pack.facts import architectures, refused_architectures
from h2o_pack.models.json_file import read_object
from h2o_pack.models.quantization import Quantization, read_quantization

ASSUME = "--assume-full-attention"
DEFAULT_DTYPE = "bfloat16"


@dataclass(frozen=True)
class Described:
    """A configuration; assumed: its architecture is unknown. remarks: for the user."""

    config: ModelConfig
    assumed: bool = False
    remarks: tuple[str, ...] = ()


def read_config(path: Path, *, assume_full_attention: bool = False) -> ModelConfig:
    """Read and check config.json; UserError says all that is wrong with it."""
    document = read_object(path)
    return describe(document, str(path), assume_full_attention=assume_full_attention).config


def describe(
    document: Mapping[str, Any],
    where: str,
    *,
    assume_full_attention: bool = False,
    stored_dtype: str = "",
) -> Described:
    """Make a description of the content of config.json.

    Args:
        document: the content.
        where: the file, for messages.
        assume_full_attention: take an unknown architecture for one whose layers all
            attend to the whole context.
        stored_dtype: of activations, where the tensors tell it; it wins over the config,
            as it does in mlx_lm, which computes in the dtype of what it loads.

    Raises:
        UserError: one or several: all that is wrong.

    """
    problems = Problems(where)
    model_type = document.get("model_type")
    if not isinstance(model_type, str):
        problems.fail("config.json names no model_type")
    known = model_type in architectures()
    if not known:
        refuse_unknown(model_type, problems, assume_full_attention=assume_full_attention)
    if document.get("model_file") is not None:
        problems.add(
            "config.json names a model_file, Python code that comes with the model",
            "h2o-pack runs no code from models. Choose another one.",
        )
    text, inside, kind = language_model(document, model_type, problems, known=known)
    quantization = read_quantization(document, text, problems)
    dtype = stored_dtype or read_dtype(document, text, problems)
    family = read(kind, text, problems, inside, architectures().get(read_like(model_type)))
    family.check(problems)
    problems.refuse()
    config = assemble(model_type, family, dtype, quantization)
    if not config.evicting:
        problems.fail(
            f'no layer of this "{model_type}" model attends to the whole context, so there '
            "is nothing for H2O to bound",
            "Choose a model with full-attention layers.",
        )
    remarks = (*family.remarks(), *remarks_on_type(model_type))
    return Described(config, assumed=not known, remarks=remarks)


def remarks_on_type(model_type: str) -> tuple[str, ...]:
    """Return what a user should know of models of a type."""
    known = architectures().get(model_type)
    if known is None:
        assumed = (
            f"nothing is known of model_type {shown(model_type)}: all its layers were taken "
            "for layers that attend to the whole context, as asked."
        )
        return (assumed,)
    remarks = []
    if not known.scores:
        remarks.append(
            f"mlx-swift-lm's {known.swift}.swift attends outside of the cache, so no scores "
            "arrive on the device: novelty and recency alone decide what stays."
        )
    if known.upstream_versions:
        remarks.append(
            f"of mlx-swift-lm, only {' and '.join(known.upstream_versions)} has models of this "
            "type: give `h2o-pack ios` --upstream-version."
        )
    return tuple(remarks)


def assemble(
    model_type: str, family: Decoder, dtype: str, quantization: Quantization
) -> ModelConfig:
    """Put the parts of a checked configuration together."""
    experts, per_token = family.mixture
    return ModelConfig(
        model_type=model_type,
        layers=family.layers(DTYPES[dtype]),
        heads=family.num_attention_heads,
        hidden_size=family.hidden_size,
        intermediate_size=family.feed_forward,
        vocabulary=family.vocab_size,
        context=family.max_position_embeddings,
        dtype=dtype,
        bits=quantization.bits,
        group_size=quantization.group_size,
        experts=experts,
        experts_per_token=per_token,
    )


def refuse_unknown(model_type: str, problems: Problems, *, assume_full_attention: bool) -> None:
    """Note why a model type cannot be packaged; an unknown one may be assumed."""
    known, refused = architectures(), refused_architectures()
    name = shown(model_type)
    if model_type in refused:
        reason = refused[model_type]
        problems.add(
            f"model_type {name} is not supported: {reason.reason}",
            f"Choose a model of another family. Supported: {', '.join(sorted(known))}.",
        )
    elif not assume_full_attention:
        problems.add(
            f"model_type {name} is not supported",
            f"{nearest(model_type[:100], known)}Supported: {', '.join(sorted(known))}. "
            f"{ASSUME} takes an unknown one for a model whose layers all attend to the "
            "whole context; its package works only if mlx-swift-lm has such a model.",
        )


def read_like(model_type: str) -> str:
    """Return the type whose keys and defaults a type has: another one's or its own."""
    known = architectures().get(model_type)
    return (known.like if known else "") or model_type


def language_model(
    document: Mapping[str, Any], model_type: str, problems: Problems, *, known: bool
) -> tuple[Mapping[str, Any], str, type[Decoder]]:
    """Return the object that describes the language model, its key, and what reads it."""
    family = FAMILIES[model_type] if known else Wrapped(Decoder, (), alone=True)
    if not isinstance(family, Wrapped):
        return document, "", family
    text = document.get("text_config")
    if text is None and family.alone:
        return document, "", family.reader
    if not isinstance(text, dict):
        problems.fail(f"text_config is {shown(text)} but should be an object")
    inner = text.get("model_type")
    if known and inner is not None and inner not in family.inner:
        problems.fail(
            f"text_config.model_type is {shown(inner)} but should be {', '.join(family.inner)}",
            "Choose another model.",
        )
    if not known:
        return text, "text_config", family.reader
    filled = {"vocab_size": document.get("vocab_size"), **text}
    if model_type == "gemma3" and document.get("vocab_size") is None:
        filled.setdefault("vocab_size", 262208)
    return filled, "text_config", family.reader


def read_dtype(document: Mapping[str, Any], text: Mapping[str, Any], problems: Problems) -> str:
    """Return the dtype that the configuration states."""
    for each in (document, text):
        for key in ("torch_dtype", "dtype"):
            value = each.get(key)
            if value is None:
                continue
            if isinstance(value, str) and value in DTYPES:
                return value
            problems.add(f"{key} is {shown(value)} but should be {', '.join(DTYPES)}")
            return DEFAULT_DTYPE
    return DEFAULT_DTYPE
