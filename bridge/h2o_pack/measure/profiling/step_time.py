"""Times the parts of a decode step: write, attention, ledger, and the rest of the model.

MLX evaluates a step as a whole, so its parts cannot be timed one by one. Instead, the runs
below alternate in one process on the same rows, and the time of a part is the difference
between two of them in the same repetition:

    E    mx.eval of almost nothing, a cost that all others contain
    W    the writes of every layer                           write     = W - E
    WA   W, and attention that returns its logits            attention = WA - W
    WAL  WA, and the ledger: the cache's two calls           ledger    = WAL - WA
    M    one token of the whole model                        rest      = M - (WAL - E)

The rest therefore contains the work of the caches' Python classes, and loading rows again that
left the processor's caches while other layers ran. Rows are dense, so that `cache_attend` does
nothing but attention and the ledger.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import CacheList

from h2o_pack.measure.profiling.report import PartTime, StepTime
from h2o_pack.measure.timing import interleave, timed
from h2o_py import fast
from h2o_py.cache import H2OKVCache
from h2o_py.config import H2OConfig
from h2o_py.errors import H2OConfigWarning, H2OScoresMissingWarning
from h2o_py.models import make_h2o_cache
from h2o_py.rows import Rows

_CHUNK = 128


class NotTimedError(Exception):
    """A step cannot be timed; the message says why."""


def measure(
    model: Any, piece: list[int], heads: Mapping[int, int], rows: int, repetitions: int
) -> StepTime:
    """Time a step of a routed model whose caches are full, so that each token evicts one.

    piece: token ids, more than `rows`. heads: number of query heads by layer index, for layers
    whose attention gives scores. rows: C of each H2O cache, with the default policy. Raises
    NotTimedError: the sample is too short, or attention gives the caches no scores. H2OError:
    h2o_py refuses the model.
    """
    if rows >= len(piece):
        raise NotTimedError(f"{rows} rows are not fewer than the sample's {len(piece)} tokens")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", H2OConfigWarning)  # the generated text is not used
        warnings.simplefilter("ignore", H2OScoresMissingWarning)  # an error says so below
        caches = make_h2o_cache(model, H2OConfig(rows))
    evicting = {i: inner for i, cache in enumerate(caches) if (inner := _evicting(cache))}
    if not evicting.keys() <= heads.keys():
        raise NotTimedError("the model's attention gives the caches no scores")
    _filled(model, caches, piece)
    layers = [_Layer(cache, heads[i]) for i, cache in evicting.items()]
    ones = mx.ones((1,))
    bursts = {
        "E": timed(lambda: mx.eval(ones + 1)),
        "W": timed(lambda: mx.eval([layer.write() for layer in layers])),
        "WA": timed(lambda: mx.eval([layer.write_attend() for layer in layers])),
        "WAL": timed(lambda: mx.eval([layer.step() for layer in layers])),
        "M": timed(_steps(model, caches, piece)),
    }
    t = interleave(bursts, repetitions)
    step = t["M"]
    parts = {
        "write": t["W"].without(t["E"]),
        "attention": t["WA"].without(t["W"]),
        "ledger": t["WAL"].without(t["WA"]),
        "rest": step.without(t["WAL"].without(t["E"])),
    }
    return StepTime(
        rows=rows,
        evicting=len(evicting),
        own=len(caches) - len(evicting),
        step=step,
        parts={
            name: PartTime.of(part.values, share=part.over(step))
            for name, part in parts.items()
        },
    )


class _Layer:
    """A full cache's arrays, and one token's calls on copies of them."""

    def __init__(self, cache: H2OKVCache, heads: int) -> None:
        self._config, self._offset = cache.config, cache.offset
        rows, *_ = cache.arrays
        ledger = cache.ledger
        assert ledger is not None  # noqa: S101  a full cache has a ledger
        self._ledger = ledger
        self._rows = [Rows(rows + 0) for _ in range(3)]  # copies: each is written in place
        keys, values = cache.keys, cache.values
        assert keys is not None  # noqa: S101
        assert values is not None  # noqa: S101
        self._key_dim = keys.shape[3]
        self._token = (keys[:, :, -1:] * 0.9, values[:, :, -1:])
        self._queries = mx.random.normal((1, heads, 1, self._key_dim))
        self._queries = self._queries.astype(keys.dtype)
        self._stepping = ledger
        mx.eval(self._rows, self._token, self._queries, ledger)

    def write(self) -> Rows:
        """Write the token's row, and do nothing else."""
        return self._written(0, self._ledger)

    def write_attend(self) -> tuple[mx.array, mx.array]:
        """Write the token's row and attend, without a ledger; returns output and logits."""
        rows = self._written(1, self._ledger)
        keys, values = mx.split(rows.pool, [self._key_dim], axis=3)
        return fast.scaled_dot_product_attention_with_scores(
            self._queries, keys, values, scale=self._key_dim**-0.5
        )

    def step(self) -> list[mx.array | None]:
        """Write the token's row, attend and update the ledger, for the next step to use."""
        rows = self._written(2, self._stepping)
        attended = fast.cache_attend(
            self._queries,
            rows,
            self._stepping,
            tokens=1,
            offset=self._offset,
            config=self._config,
            scale=self._key_dim**-0.5,
        )
        self._offset += 1
        self._stepping = attended.ledger
        return [attended.out, *attended.ledger]

    def _written(self, which: int, ledger: Any) -> Rows:
        self._rows[which] = fast.cache_write(
            self._rows[which], *self._token, ledger.victim, self._offset, self._config
        )
        return self._rows[which]


def _filled(model: Any, caches: list[Any], piece: list[int]) -> list[Any]:
    for start in range(0, len(piece), _CHUNK):
        mx.eval(model(mx.array([piece[start : start + _CHUNK]]), cache=caches))
    return caches


def _steps(model: Any, caches: list[Any], piece: list[int]) -> Callable[[], None]:
    tokens = itertools.cycle([mx.array([[token]]) for token in piece[:16]])
    return lambda: mx.eval(model(next(tokens), cache=caches))


def _evicting(cache: Any) -> H2OKVCache | None:
    members = cache.caches if isinstance(cache, CacheList) else [cache]
    return next((member for member in members if isinstance(member, H2OKVCache)), None)
