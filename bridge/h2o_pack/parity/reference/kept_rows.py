"""The rows that a layer keeps: attention over them, and eviction."""

from __future__ import annotations

from typing import NamedTuple

import mlx.core as mx

from h2o_pack.parity.reference.attention import (
    LOWEST,
    Mask,
    logits_of,
    probabilities,
    weighted_sum,
)
from h2o_pack.parity.reference.policy import eviction_order, importance_of, observed
from h2o_pack.parity.reference.rows import (
    as_given,
    as_stored,
    converted,
    packed,
    separated,
    unpacked,
)
from h2o_py.config import H2OConfig
from h2o_py.rows import Ledger, RowFormat, Rows

Part = dict[str, mx.array]
"""Rows of the pool or of the ring, arrays [B, Hkv, N] by name: `packed` [B, Hkv, N, R] has keys
and values side by side, and the others are the rows' entries in the ledger."""
UNUSED = {"scores": -1.0, "positions": -1}
"""The entries of the ledger, and their values where no row is in use."""


class Elsewhere(NamedTuple):
    """Tokens that are not in the rows, and which queries attend to them.

    keys [B, Hkv, n, Dk], values [B, Hkv, n, Dv], reads bool [B, Hq, L, n].
    """

    keys: mx.array
    values: mx.array
    reads: mx.array


class KeptRows:
    """Keys and values of the tokens that a layer keeps, and what it knows of them.

    The newest tokens are in the ring, the token of position p in slot p % `slots`, and all
    others in the pool. If the newest tokens have no precision of their own, the ring has no
    slots. A chunk of tokens is behind the ring's slots until its attention is computed. A *row*
    is an index among the pool's rows in use, followed by the ring's. Once all rows are in use,
    they are in the order of the ledger.
    """

    def __init__(
        self,
        config: H2OConfig,
        row_format: RowFormat,
        *,
        key_dim: int,
        seen: int,
        rows: Rows,
        ledger: Ledger,
    ) -> None:
        self.config, self.row_format = config, row_format
        self.slots = config.recent_budget if row_format.has_ring else 0
        self.pool_size = config.max_size - self.slots
        self.pool_format = row_format.pool
        self.ring_format = row_format.ring if self.slots else row_format.pool
        self._key_dim = key_dim
        self.seen = seen
        """Tokens written so far."""
        self.unattended = 0
        """The newest tokens that have no attention yet."""
        in_pool, in_ring = max(0, min(seen - self.slots, self.pool_size)), min(seen, self.slots)
        ring = rows.pool if rows.ring is None else rows.ring
        self.pool: Part = {"packed": rows.pool[:, :, :in_pool]}
        self.ring: Part = {"packed": ring[:, :, :in_ring]}
        self.ledger = self._ledger_before = ledger

    @classmethod
    def empty(
        cls, config: H2OConfig, row_format: RowFormat, keys: mx.array, values: mx.array
    ) -> KeptRows:
        """Make an empty cache for tokens like these."""
        batch, heads, _, key_dim = keys.shape
        formats = [row_format.pool, row_format.ring] if row_format.has_ring else [row_format]
        no_rows = [packed(keys[:, :, :0], values[:, :, :0], form) for form in formats]
        rows = (batch, heads, config.max_size)
        ledger = Ledger(
            scores=mx.full(rows, UNUSED["scores"], mx.float32),
            positions=mx.full(rows, UNUSED["positions"], mx.int32),
            victim=mx.full((batch, heads), -1, mx.int32),
        )
        return cls(
            config, row_format, key_dim=key_dim, seen=0, rows=Rows(*no_rows), ledger=ledger
        )

    @property
    def length(self) -> int:
        """Rows in use, more than C only while a chunk has no attention yet."""
        return _count(self.pool) + _count(self.ring)

    @property
    def rows(self) -> Rows:
        """The rows in use; without slots, a chunk without attention is behind the pool."""
        pool, ring = self.pool["packed"], self.ring["packed"]
        return Rows(pool, ring) if self.slots else Rows(mx.concatenate([pool, ring], axis=2))

    @property
    def stored_vectors(self) -> list[mx.array]:
        """The packed keys and values of the rows in use."""
        parts = [(self.pool, self.pool_format)]
        if self.slots:
            parts.append((self.ring, self.ring_format))
        return [
            vectors
            for part, form in parts
            for vectors in separated(part["packed"], self._key_dim, form)
        ]

    @property
    def ledger(self) -> Ledger:
        """The entries of the pool and of the ring, each filled up with unused ones.

        New tokens are in it once their attention was computed.
        """
        if self.unattended:
            return self._ledger_before
        entries = {
            name: mx.concatenate(
                [
                    _filled(self.pool[name], self.pool_size, unused),
                    _filled(self.ring[name], self.slots, unused),
                ],
                axis=2,
            )
            for name, unused in UNUSED.items()
        }
        return Ledger(**entries, victim=self.victim)

    @ledger.setter
    def ledger(self, ledger: Ledger) -> None:
        self.victim = ledger.victim
        entries = {name: a for name, a in ledger._asdict().items() if name in UNUSED}
        in_pool, ring_end = _count(self.pool), self.pool_size + _count(self.ring)
        self.pool = self.pool | {name: a[:, :, :in_pool] for name, a in entries.items()}
        in_ring = slice(self.pool_size, ring_end)
        self.ring = self.ring | {name: a[:, :, in_ring] for name, a in entries.items()}

    def entries(self) -> Part:
        """The ledger's entries of the rows in use, [B, Hkv, N]."""
        return {
            name: mx.concatenate([self.pool[name], self.ring[name]], axis=2) for name in UNUSED
        }

    def set_entries(self, entries: Part) -> None:
        """Replace arrays of all rows in use, [B, Hkv, N]."""
        count = _count(self.pool)
        self.pool = self.pool | {name: array[:, :, :count] for name, array in entries.items()}
        self.ring = self.ring | {name: array[:, :, count:] for name, array in entries.items()}

    def vectors(self) -> tuple[mx.array, mx.array]:
        """Keys and values of the rows in use, as stored, in float32."""
        pool = unpacked(self.pool["packed"], self._key_dim, self.pool_format)
        ring = unpacked(self.ring["packed"], self._key_dim, self.ring_format)
        keys, values = (
            mx.concatenate([*pair], axis=2) for pair in zip(pool, ring, strict=True)
        )
        return keys, values

    def write(self, keys: mx.array, values: mx.array) -> None:
        """Write the next tokens; a single token overwrites the victim of full rows."""
        self._ledger_before = self.ledger
        batch, heads, tokens, _ = keys.shape
        keys, values = as_stored(keys, self.row_format), as_stored(values, self.row_format)
        rows = packed(keys, values, self.ring_format)
        positions = mx.arange(self.seen, self.seen + tokens)
        new = {
            "packed": rows,
            "scores": mx.full((batch, heads, tokens), -1.0),
            "positions": mx.broadcast_to(positions, (batch, heads, tokens)),
        }
        if tokens > 1:
            self.ring = _joined(self.ring, new)
        else:
            self._enter(new)
        self.seen += tokens
        self.unattended = tokens

    def _enter(self, token: Part) -> None:
        """Put a token into its slot. The row that leaves the ring moves to the pool."""
        leaving = token
        if self.slots:
            if _count(self.ring) < self.slots:
                self.ring = _joined(self.ring, token)
                return
            slot = self.seen % self.slots
            leaving = {name: array[:, :, slot : slot + 1] for name, array in self.ring.items()}
            leaving = self._converted(leaving, self.ring_format, self.pool_format)
            self.ring = _replaced(self.ring, slot, token)
        if _count(self.pool) < self.pool_size:
            self.pool = _joined(self.pool, leaving)
        else:  # if the leaving row is the victim itself, no row of the pool matches
            self.pool = _replaced(self.pool, self.victim[:, :, None], leaving)

    def attend(
        self,
        queries: mx.array,
        *,
        scale: float,
        mask: Mask = None,
        sinks: mx.array | None = None,
        elsewhere: Elsewhere | None = None,
    ) -> mx.array:
        """Let the newest tokens attend to all rows, update the scores, and evict.

        What they read elsewhere takes part in the same softmax.
        """
        keys, values = self.vectors()
        asked = as_stored(queries, self.row_format)
        logits = all_logits = logits_of(asked, keys, scale, mask, low_bias_hides=True)
        if elsewhere is not None:
            others = logits_of(asked, elsewhere.keys, scale, None)
            seen = elsewhere.reads & mx.isfinite(others)
            all_logits = mx.concatenate([logits, mx.where(seen, others, LOWEST)], axis=3)
            # 0 times the value of a token that nothing sees must be 0.
            finite = mx.where(mx.isfinite(elsewhere.values), elsewhere.values, 0.0)
            values = mx.concatenate([values, finite], axis=2)
        shares = probabilities(all_logits, sinks)
        out = weighted_sum(shares, values).astype(queries.dtype)
        rows = slice(logits.shape[3])
        scores = observed(self.entries()["scores"], logits, shares[..., rows], self.config)
        self.set_entries({"scores": scores})
        self.settle()
        return as_given(out, self.row_format)

    def settle(self) -> None:
        """Evict down to C rows, and choose the row that the next token overwrites."""
        if self.unattended > 1:
            self._arrange()
        self.unattended = 0
        self.choose_victim()

    def _arrange(self) -> None:
        """Evict the least important rows, and move the newest ones to the ring's slots."""
        config, slots, entries = self.config, self.slots, self.entries()
        positions = entries["positions"]
        count, in_ring = positions.shape[2], min(self.seen, slots)
        recent_from = self.seen - config.recent_budget
        importance = importance_of(entries, config, recent_from=recent_from)
        rank = mx.argsort(eviction_order(importance, positions), axis=-1)
        is_recent = positions >= self.seen - slots
        goes_to_pool = mx.greater_equal(rank, max(0, count - config.max_size)) & ~is_recent
        rows = mx.broadcast_to(mx.arange(count), positions.shape)
        of_pool = mx.sort(mx.where(goes_to_pool, rows, count), axis=-1)
        of_pool = of_pool[:, :, : min(count, config.max_size) - in_ring]
        slot_of = mx.where(is_recent, positions % max(1, slots), slots)
        of_ring = mx.argsort(slot_of, axis=-1)[:, :, :in_ring]
        pool, ring = self.pool, self.ring
        as_pool = self._converted(ring, self.ring_format, self.pool_format)
        as_ring = self._converted(pool, self.pool_format, self.ring_format)
        self.pool = _taken(_joined(pool, as_pool), of_pool)
        self.ring = _taken(_joined(as_ring, ring), of_ring)

    def choose_victim(self) -> None:
        """Choose the row that the next token overwrites, if all rows are in use."""
        if self.seen < self.config.max_size:
            return
        entries = self.entries()
        recent_from = self.seen + 1 - self.config.recent_budget
        importance = importance_of(entries, self.config, recent_from=recent_from)
        order = eviction_order(importance, entries["positions"])
        self.victim = order[:, :, 0].astype(mx.int32)

    def trim(self, n: int) -> None:
        """Remove the `n` newest tokens, before the first eviction and without slots."""
        self.seen -= n
        self.pool = {name: array[:, :, : self.seen] for name, array in self.pool.items()}
        self.victim = mx.full(self.victim.shape, -1, mx.int32)

    def _converted(self, part: Part, old: RowFormat, new: RowFormat) -> Part:
        return part | {"packed": converted(part["packed"], self._key_dim, old, new)}


def _count(part: Part) -> int:
    return int(part["packed"].shape[2])


def _joined(first: Part, second: Part) -> Part:
    return {name: mx.concatenate([first[name], second[name]], axis=2) for name in first}


def _taken(part: Part, rows: mx.array) -> Part:
    """Return the rows with these indices [B, Hkv, M], in their order."""
    return {
        name: mx.take_along_axis(a, rows[..., None] if name == "packed" else rows, axis=2)
        for name, a in part.items()
    }


def _replaced(part: Part, row: mx.array | int, token: Part) -> Part:
    """Replace one row by a token. row: its index, or [B, Hkv, 1] an index of each head."""
    is_row = mx.equal(mx.arange(_count(part)), row)
    return {
        name: mx.where(is_row[..., None] if name == "packed" else is_row, token[name], a)
        for name, a in part.items()
    }


def _filled(entries: mx.array, size: int, unused: float) -> mx.array:
    """Fill up entries [B, Hkv, N] with unused ones to `size`."""
    batch, heads, count = entries.shape
    spare = mx.full((batch, heads, size - count), unused, entries.dtype)
    return mx.concatenate([entries, spare], axis=2)
