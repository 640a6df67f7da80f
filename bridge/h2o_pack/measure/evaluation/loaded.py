"""A model that is loaded, what it reads, and what says which model it was."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.utils as mlx_utils
import numpy as np

from h2o_pack.files.text import read_file, read_text
from h2o_pack.measure.evaluation.contenders import (
    SINKS,
    BudgetsFor,
    CacheFactory,
    Contender,
    policies,
)
from h2o_pack.measure.models import load
from h2o_pack.measure.profiling import rules
from h2o_pack.measure.profiling.options import Options
from h2o_pack.measure.profiling.report import Profile, read_profile
from h2o_pack.measure.profiling.run import profile_model
from h2o_pack.measure.text import Part, Tokens, held_out
from h2o_pack.progress import silent
from h2o_py.budgets import Budgets, parse_budgets

_PROFILED, _PIECES = 1024, 4
"""Tokens of a piece of the text that is profiled, and number of pieces, without a profile."""


@dataclass(frozen=True)
class LayerBudgetsSource:
    """Where budgets by layer come from.

    Args:
        budgets: a file of budgets (`h2o_py.budgets`), for one number of rows.
        profile: a profile.json that they are made from; None profiles the model when they
            are needed.

    """

    budgets: Path | None = None
    profile: Path | None = None


@dataclass(frozen=True)
class LoadedModel:
    """A model with its cache factory, text and words for names.

    sha256: of the names, types, shapes and bytes of all parameters, in the names' order.
    text: what the text is called in reports.
    """

    name: str
    sha256: str
    model: Any
    factory: CacheFactory
    tokens: Tokens
    words: tuple[str, ...]
    text: str


def load_for_evaluation(
    name: str,
    *,
    text: Part = "source",
    file: Path | None = None,
    by_layer: LayerBudgetsSource = LayerBudgetsSource(),
    float32: bool = False,
) -> LoadedModel:
    """Load a model and what it reads.

    Args:
        name: what mlx_lm loads; "demo" is the bundled demo model.
        text: "source" or "prose", held out from the demo model's training.
        file: a user's own text instead.
        by_layer: where budgets by layer come from.
        float32: whether the model computes in it.

    Raises:
        UserError: the model cannot be loaded, or the text not read.

    """
    model, tokenizer = load(name)
    documents, called = held_out(text).documents, f"held-out {text} of the demo model"
    if file is not None:
        documents, called = (read_text(file, "Give a file of UTF-8 text."),), file.name
    return wrap(model, tokenizer, name, documents, called, by_layer, float32=float32)


def wrap(
    model: Any,
    tokenizer: Any,
    name: str,
    documents: tuple[str, ...],
    called: str,
    by_layer: LayerBudgetsSource = LayerBudgetsSource(),
    *,
    float32: bool = False,
) -> LoadedModel:
    """Gather what a run needs of a model that is loaded already."""
    tokens = Tokens(tokenizer, documents)
    sha256 = digest(model)
    if float32:
        model.set_dtype(mx.float32)
    factory = CacheFactory(model, budgets=budgets_for(model, tokens, by_layer))
    return LoadedModel(
        name=name if "/" not in name and "\\" not in name else Path(name).name,
        sha256=sha256,
        model=model,
        factory=factory,
        tokens=tokens,
        words=held_out().words,
        text=called,
    )


def digest(model: Any) -> str:
    """Return the sha256 of all parameters."""
    total = hashlib.sha256()
    parameters: Any = mlx_utils.tree_flatten(model.parameters())
    for name, array in sorted(parameters):
        total.update(f"{name} {array.dtype} {array.shape}\n".encode())
        total.update(np.asarray(mx.contiguous(array).reshape(-1).view(mx.uint8)).tobytes())
    return total.hexdigest()


def budgets_for(model: Any, tokens: Tokens, by_layer: LayerBudgetsSource) -> BudgetsFor:
    """Return a function that makes budgets: from a user's file, or by a contender's rule."""
    profile = cache(lambda: _profile(model, tokens, by_layer.profile))

    def budgets(contender: Contender) -> Budgets:
        if by_layer.budgets is not None:
            return parse_budgets(read_file(by_layer.budgets), str(by_layer.budgets))
        if policies()[contender.policy].by_layer == "reach":
            by_index = rules.layer_rows(
                rules.reaches(profile()),
                contender.rows,
                lambda rows: contender.with_rows(rows).config(),
            )
        else:
            measures = {layer.index: layer.figures.concentration for layer in profile().full}
            by_index = rules.layer_shares(measures, contender.rows, SINKS)
        return rules.budgets(by_index, profile().caches)

    return budgets


def _profile(model: Any, tokens: Tokens, profile: Path | None) -> Profile:
    if profile is not None:
        return read_profile(profile)
    length = min(_PROFILED, len(tokens.ids))
    options = Options(tokens=length, samples=_PIECES, time_steps=False)
    spread = max(1, len(tokens.ids) // _PIECES)
    pieces = [tokens.window(i * spread, length) for i in range(_PIECES)]
    return profile_model(model, pieces, options, silent)[0]
