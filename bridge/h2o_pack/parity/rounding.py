"""Level 3: checks whether rounding alone explains a difference between Swift and mlx-lm.

If two rows are equally important, rounding decides which is evicted. If a value lies between
two codes of a quantized row, rounding decides which code it gets. Either can change the
following logits by more than any tolerance, and more often in models with more layers.

So mlx-lm reads the session's steps again with the evictions of Swift: once with its own
weights, and DRAWS times with each weight left as it is or moved to a neighboring number. The
first run shows whether anything differs besides the evicted rows. The others show how much one
rounding of each weight changes the difference of two rows' importances, and the logits computed
from quantized rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import mlx.core as mx
from mlx.utils import tree_unflatten

from h2o_pack.parity.op import importances, rows_held
from h2o_pack.parity.reference.policy import protected
from h2o_pack.parity.request import Step, TokenCase, replay
from h2o_pack.parity.trace import with_weights

DRAWS = 8
MARGIN = 2  # Swift may differ by this factor times the largest change in the DRAWS runs
WORDS = {2: mx.int16, 4: mx.int32}


@dataclass(frozen=True)
class Exchange:
    """An eviction in which Swift and mlx-lm chose different rows.

    positions: of the row that mlx-lm would evict, and of the row that Swift evicted. gap: the
    importance of Swift's row minus the importance of mlx-lm's row; infinite if the policy
    protects Swift's row.
    """

    step: int
    layer: int
    batch: int
    head: int
    positions: tuple[int, int]
    gap: float

    def spread(self, gaps: Sequence[float]) -> float:
        """Return the largest change of the gap by moved weights; 0 if all of `gaps` are NaN.

        gaps: the gap in each run with moved weights.
        """
        return max((abs(gap - self.gap) for gap in gaps if gap == gap), default=0.0)  # noqa: PLR0124 - NaN


@dataclass(frozen=True)
class Run:
    """A run of mlx-lm over the steps of a session.

    logits: [vocabulary] after each step of a single token, by the number of tokens read so far.
    evicting: which caches evict. kept: the positions int32 [B, Hkv, C] that each of these keeps
    at the end, by layer. exchanges: found in the run with the model's own weights, if the run
    follows Swift's evictions. gaps: the gap of each exchange in this run; NaN if the caches
    lack one of the exchange's two rows.
    """

    logits: Mapping[int, mx.array]
    evicting: tuple[bool, ...] = ()
    kept: Mapping[int, mx.array] = field(default_factory=dict)
    exchanges: tuple[Exchange, ...] = ()
    gaps: tuple[float, ...] = ()


def run_case(
    model: Any,
    case: TokenCase,
    steps: Sequence[Step],
    swift: Mapping[str, mx.array] | None = None,
    known: tuple[Exchange, ...] | None = None,
) -> Run:
    """Let mlx-lm read what a session read.

    swift: Swift's positions, to follow its evictions; without them, mlx-lm chooses. known:
    exchanges whose gaps to measure; None to find the exchanges.
    """
    caches = case.make_caches(model)
    evictions = Evictions(case.name, caches, swift or {}, known)
    logits = replay(model, caches, steps, evictions.follow)
    evicting = tuple(getattr(cache, "positions", None) is not None for cache in caches)
    kept = {layer: caches[layer].positions for layer, evicts in enumerate(evicting) if evicts}
    exchanges = tuple(evictions.exchanges) if known is None else known
    return Run(logits, evicting, kept, exchanges, tuple(evictions.gaps))


def runs(
    model: Any, case: TokenCase, steps: Sequence[Step], swift: Mapping[str, mx.array]
) -> Iterator[Run]:
    """Yield a run with the model's weights, then DRAWS runs with moved weights.

    swift: the positions that Swift kept after each single token, int32 [B, Hkv, C], named
    "<case>.kept.<layer>.<tokens read so far>".
    """
    exchanges: tuple[Exchange, ...] | None = None
    with with_weights(model) as weights:
        for draw in range(DRAWS + 1):
            if draw:
                keys = mx.random.split(mx.random.key(draw - 1), len(weights))
                changed = [
                    (name, moved(weight, keys[i])) for i, (name, weight) in enumerate(weights)
                ]
                model.update(tree_unflatten(changed))
            made = run_case(model, case, steps, swift, exchanges)
            exchanges = made.exchanges
            yield made


@dataclass
class Evictions:
    """Makes mlx-lm's caches evict the rows that Swift's caches evicted.

    A step is named by the number of tokens that the caches have read after it. swift: as in
    `runs`. known: exchanges whose gaps to measure; None to find the exchanges.
    """

    name: str
    caches: Sequence[Any]
    swift: Mapping[str, mx.array]
    known: tuple[Exchange, ...] | None
    exchanges: list[Exchange] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)

    def follow(self, step: int) -> None:
        """Set the victims of all layers: the rows that the token of this step replaces."""
        for layer, cache in enumerate(self.caches):
            positions = self.swift.get(f"{self.name}.kept.{layer}.{step}")
            if positions is not None and hasattr(cache, "attend"):
                self.follow_layer(step, layer, cache, cast("Any", positions.tolist()))

    def follow_layer(self, step: int, layer: int, cache: Any, swift: list[Any]) -> None:
        """Set the victims of one layer. swift: positions [B][Hkv][C] after the step."""
        victims = cast("list[list[int]]", cache.ledger.victim.tolist())
        changed = False
        for batch, heads in enumerate(victims):
            for head, victim in enumerate(heads):
                rows = rows_held(cache.ledger, batch, head)
                leaving = [position for position in rows if position not in swift[batch][head]]
                # If the caches already kept different rows, no single choice can be followed.
                if victim < 0 or len(leaving) != 1 or rows[leaving[0]] == victim:
                    continue
                planned = next(position for position, row in rows.items() if row == victim)
                if self.known is None:
                    positions = (planned, leaving[0])
                    gap = gap_of(cache, batch, head, positions)
                    self.exchanges.append(Exchange(step, layer, batch, head, positions, gap))
                heads[head], changed = rows[leaving[0]], True
        for exchange in self.known or ():
            if (exchange.step, exchange.layer) == (step, layer):
                gap = gap_of(cache, exchange.batch, exchange.head, exchange.positions)
                self.gaps.append(gap)
        if changed:
            cache.ledger = cache.ledger._replace(victim=mx.array(victims, mx.int32))


def gap_of(cache: Any, batch: int, head: int, positions: tuple[int, int]) -> float:
    """Return the second position's importance minus the first position's importance.

    Infinite if the second position is protected; NaN if the head lacks one of them.
    """
    first, second = positions
    if is_protected(cache, second):
        return float("inf")
    values = importances(cache.ledger, batch, head)
    return values.get(second, float("nan")) - values.get(first, float("nan"))


def is_protected(cache: Any, position: int) -> bool:
    """Return whether a position is protected from eviction at the next token."""
    recent_from = cache.offset + 1 - cache.config.recent_budget
    return bool(protected(mx.array(position), cache.config, recent_from).item())


def moved(weight: mx.array, key: mx.array) -> mx.array:
    """Return a weight whose elements are each kept or moved to a neighboring number, at random.

    Zeros and quantized codes keep their values.
    """
    if not mx.issubdtype(weight.dtype, mx.floating):
        return weight
    word = WORDS[weight.dtype.size]
    steps = mx.random.randint(-1, 2, weight.shape, word, key=key)
    return (weight.view(word) + mx.where(weight == 0, 0, steps)).view(weight.dtype)
