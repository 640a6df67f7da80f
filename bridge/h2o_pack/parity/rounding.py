"""What mlx-lm itself says when each weight is moved by one rounding.

Quantization rounds each element to a code. Where an element stands on the boundary of two
codes, a difference of one rounding anywhere before it decides, and the logits that follow
differ by what a step of the code is worth: more than the tolerance, in some models.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import mlx.core as mx
from mlx.utils import tree_flatten, tree_unflatten

from h2o_pack.parity.request import Request, TokenCase, generate, make_caches
from h2o_pack.parity.trace import load
from h2o_py.budgets import read_budgets
from h2o_py.config import H2OConfig

DRAWS = 8
WORDS = {2: mx.int16, 4: mx.int32}


def moved_runs(
    folder: Path, request: Request, case: TokenCase
) -> Iterator[tuple[list[int], list[mx.array]]]:
    """Yield the tokens chosen and the logits of a case, DRAWS times with other weights."""
    model, _ = load(folder)
    weights = cast("list[tuple[str, mx.array]]", tree_flatten(model.parameters()))
    budgets = None if case.budgets is None else read_budgets(case.budgets, "request")
    config = H2OConfig.from_dict(case.config)
    for draw in range(DRAWS):
        keys = mx.random.split(mx.random.key(draw), len(weights))
        changed = [(name, moved(each, keys[i])) for i, (name, each) in enumerate(weights)]
        model.update(tree_unflatten(changed))
        caches = make_caches(model, config, case.kv, case.group_size, budgets)
        yield generate(model, caches, list(request.prompt), request.prefill, case.tokens)


def moved(weight: mx.array, key: mx.array) -> mx.array:
    """Return each element or one of its two neighbors; zeros and codes stay as they are."""
    if not mx.issubdtype(weight.dtype, mx.floating):
        return weight
    word = WORDS[weight.dtype.size]
    steps = mx.random.randint(-1, 2, weight.shape, word, key=key)
    return (weight.view(word) + mx.where(weight == 0, 0, steps)).view(weight.dtype)
