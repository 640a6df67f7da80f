"""One layer's cache as `h2o_py` has it, but without mlx_lm, whose import takes seconds."""

from __future__ import annotations

from dataclasses import dataclass, field

import mlx.core as mx

from h2o_py import fast
from h2o_py.cache_recall import CacheRecall
from h2o_py.config import H2OConfig
from h2o_py.ledger import Ledger, Rows
from h2o_py.row_format import RowFormat
from h2o_py.storages import STORAGE_BITS


@dataclass(frozen=True)
class Tokens:
    """What a model gives a cache: q [1, Hq, L, Dk], k [1, Hkv, L, Dk] and v [1, Hkv, L, Dv]."""

    q: mx.array
    k: mx.array
    v: mx.array

    @property
    def count(self) -> int:
        """How many there are (L)."""
        return int(self.k.shape[2])

    def part(self, first: int, end: int) -> Tokens:
        """Return some of them."""
        return Tokens(*(each[:, :, first:end] for each in vars(self).values()))

    def of(self, dtype: str) -> Tokens:
        """Return them in a type."""
        return Tokens(*(each.astype(getattr(mx, dtype)) for each in vars(self).values()))


@dataclass
class OneLayer:
    """The cache. kv: a name in h2o_py.storages.STORAGE_BITS; scale: of q.k."""

    config: H2OConfig
    kv: str
    group_size: int
    scale: float
    offset: int = field(default=0, init=False)
    ledger: Ledger = field(init=False)
    rows: Rows | None = field(default=None, init=False)
    row_format: RowFormat = field(init=False)
    recall: CacheRecall | None = field(default=None, init=False)

    def step(self, tokens: Tokens) -> dict[str, mx.array]:
        """Take new tokens: return out [1, Hq, L, Dv] and the ledger's arrays after them."""
        if self.rows is None:
            self.start(tokens)
        asking = self.recall.asking(tokens.count, self.offset) if self.recall else 0
        outs = []
        if asking < tokens.count:
            outs.append(self.attend(tokens.part(0, tokens.count - asking)))
        if asking:
            last = tokens.part(tokens.count - asking, tokens.count)
            self.bring_back(last)
            outs.append(self.attend(last))
        found = {"positions": self.ledger.positions, "scores": self.ledger.scores}
        held = {} if self.ledger.held is None else {"held": self.ledger.held}
        return {"out": mx.concatenate(outs, axis=2), **found, **held}

    def start(self, tokens: Tokens) -> None:
        """Make ledger and archive for tokens like these."""
        _, heads, _, key_dim = tokens.k.shape
        bits = STORAGE_BITS[self.kv]
        self.row_format = RowFormat(
            bits.key,
            bits.value,
            self.group_size,
            tokens.k.dtype,
            bits.recent,
            rotated=bits.rotated,
        )
        self.ledger = fast.make_ledger(1, heads, key_dim, self.config)
        if self.config.recall_rows > 0:
            dims = key_dim, int(tokens.v.shape[3])
            self.recall = CacheRecall.started(fast, self.config, self.group_size, dims)
            held = mx.zeros(self.ledger.scores.shape, mx.bool_)
            self.ledger = self.ledger._replace(held=held)

    def bring_back(self, tokens: Tokens) -> None:
        """Recall what these tokens ask for."""
        assert self.recall is not None  # noqa: S101  it asked
        assert self.rows is not None  # noqa: S101  something was evicted
        recalled = fast.recall(
            tokens.q,
            tokens.k,
            self.rows,
            self.ledger,
            self.recall.archive,
            offset=self.offset,
            config=self.config,
            scale=self.scale,
            mask=mask_of(tokens),
            row_format=self.row_format,
        )
        self.rows, self.ledger = recalled.rows, recalled.ledger
        self.recall.since = 0

    def attend(self, tokens: Tokens) -> mx.array:
        """Write tokens and return their attention."""
        if self.recall is not None:
            self.recall.append(tokens.k, tokens.v, self.ledger.key_sum, self.row_format)
        rows = fast.cache_write(
            self.rows,
            tokens.k,
            tokens.v,
            self.ledger.victim,
            self.offset,
            self.config,
            row_format=self.row_format,
        )
        attended = fast.cache_attend(
            tokens.q,
            rows,
            self.ledger,
            tokens=tokens.count,
            offset=self.offset,
            config=self.config,
            scale=self.scale,
            mask=mask_of(tokens),
            row_format=self.row_format,
        )
        self.offset += tokens.count
        self.rows, self.ledger = attended.rows, attended.ledger
        assert attended.out is not None  # noqa: S101  there are queries
        return attended.out


def mask_of(tokens: Tokens) -> str | None:
    """Return what tokens see of each other."""
    return "causal" if tokens.count > 1 else None
