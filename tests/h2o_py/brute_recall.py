"""A cache with recall in plain numpy, one head and one row at a time.

It states docs/what-h2o-does.md once more and shares no code with h2o_py. Numbers are
float64; only the rounding of quantized vectors is MLX's.
"""

from __future__ import annotations

import dataclasses

import mlx.core as mx
import numpy as np


def rounded(vector, bits, group):
    """A vector after it was quantized."""
    if bits == 16:
        return np.asarray(vector, np.float64)
    parts = mx.quantize(mx.array(vector, mx.float32)[None], group_size=group, bits=bits)
    wide = mx.dequantize(*parts, group_size=group, bits=bits)
    return np.array(wide[0]).astype(np.float64)


def unit(key):
    norm = np.sqrt((key * key).sum())
    return key / norm if np.isfinite(norm) and norm > 0 else np.zeros_like(key)


@dataclasses.dataclass
class Row:
    position: int
    key: np.ndarray
    value: np.ndarray
    novelty: float
    score: float = -1.0
    held: bool = False
    in_ring: bool = False


@dataclasses.dataclass
class Storage:
    """Bits of keys and values, of the newest `recent_budget` tokens if they have their own."""

    key: int = 16
    value: int = 16
    recent: int | None = None
    group: int = 32


class Head:
    """One KV head of one sequence, and the query heads that share it."""

    def __init__(self, config, storage):
        self.config, self.storage, self.recall = config, storage, config.recall
        self.rows = []
        self.seen = 0
        self.since = 0
        self.sum = 0.0
        self.victim = -1
        self.old_keys, self.old_values, self.old_novelty = [], [], []

    @property
    def kept(self):
        return sorted(row.position for row in self.rows)

    @property
    def held(self):
        return sorted(row.position for row in self.rows if row.held)

    def step(self, q, k, v, scale, sinks):
        """Attention [G, L, D] of queries [G, L, D] to keys and values [L, D]."""
        tokens = len(k)
        asking = 0
        if self.recall is not None and self.room() > 0:
            if tokens == 1:
                self.since += 1
                every = self.recall.every
                due = every > 0 and self.since >= every and self.seen > self.config.max_size
                asking = 1 if due else 0
            else:
                most = min(self.recall.ask, tokens)
                asking = most if self.seen + tokens - most > self.config.max_size else 0
        if asking == 0:
            return self.take(q, k, v, scale, sinks)
        parts = []
        cut = tokens - asking
        if cut:
            parts.append(self.take(q[:, :cut], k[:cut], v[:cut], scale, sinks))
        self.bring_back(q[:, cut:], k[cut:], scale, sinks)
        self.since = 0
        parts.append(self.take(q[:, cut:], k[cut:], v[cut:], scale, sinks))
        return np.concatenate(parts, axis=1)

    def take(self, q, k, v, scale, sinks):
        """Write, attend, observe, evict, choose the next victim."""
        config, tokens = self.config, len(k)
        self.archive(k, v)
        if tokens == 1:
            if len(self.rows) == config.max_size:
                self.rows = [row for row in self.rows if row.position != self.victim]
            for row in self.rows:
                if row.in_ring and row.position <= self.seen - config.recent_budget:
                    self.move(row, in_ring=False)
        new = [self.entered(k[t], v[t], self.seen + t) for t in range(tokens)]
        self.rows += new
        self.seen += tokens
        out = self.attention(q, scale, sinks)
        if len(self.rows) > config.max_size:
            self.evict(len(self.rows) - config.max_size)
        if tokens > 1 and self.storage.recent is not None:
            for row in self.rows:
                self.move(row, in_ring=row.position >= self.seen - config.recent_budget)
        if self.seen >= config.max_size:
            importance = self.importance(self.rows, self.seen + 1 - config.recent_budget)
            worst = min(zip(importance, (row.position for row in self.rows), strict=True))
            self.victim = worst[1]
        return out

    def entered(self, key, value, position):
        new = self.storage.recent
        bits = (self.storage.key, self.storage.value) if new is None else (new, new)
        key = rounded(key, bits[0], self.storage.group)
        value = rounded(value, bits[1], self.storage.group)
        self.sum, novelty = self.followed(self.sum, key, position)
        return Row(position, key, value, novelty, in_ring=new is not None)

    def followed(self, total, key, position):
        """The sum of unit keys with this one, and its novelty."""
        margin = self.config.novelty_margin
        total = total + unit(key)
        length = np.sqrt((total * total).sum())
        along = (unit(key) * total).sum() / length if length > 0 else 0.0
        count = position + 1
        typical = np.sqrt(max(length * length - count, 0.0) / max(1.0, count * (count - 1.0)))
        novelty = max(typical - along - margin, 0.0) if margin > 0 else 1.0 - along
        return total, novelty if np.isfinite(key).all() else 0.0

    def move(self, row, *, in_ring):
        if row.in_ring == in_ring:
            return
        row.in_ring = in_ring
        pool = self.storage.key
        if self.storage.recent != pool:
            bits = self.storage.recent if in_ring else pool
            row.key = rounded(row.key, bits, self.storage.group)
            row.value = rounded(row.value, bits, self.storage.group)

    def attention(self, q, scale, sinks):
        """Of the newest tokens over all rows; the last queries are observed."""
        config, (group, tokens, _) = self.config, q.shape
        out = np.zeros((group, tokens, len(self.rows[0].value)))
        for t in range(tokens):
            position = self.seen - tokens + t
            rows = [row for row in self.rows if row.position <= position]
            logits = np.stack([scale * (q[:, t] @ row.key) for row in rows], axis=1)
            shares = softmax(logits, sinks)
            out[:, t] = shares @ np.stack([row.value for row in rows])
            if t < tokens - config.observation_window:
                continue
            looked = np.abs(logits) if config.score == "abs_logit" else shares
            for row, m in zip(rows, looked.mean(axis=0), strict=True):
                if row.score < 0:
                    row.score = m
                elif config.score == "peak":
                    row.score = max(config.decay * row.score, m)
                else:
                    row.score = config.decay * row.score + (1 - config.decay) * m
        return out

    def protected(self, position, recent_from):
        pinned = any(begin <= position < end for begin, end in self.config.pinned)
        return position < self.config.sink_size or position >= recent_from or pinned

    def importance(self, rows, recent_from, *, holds=True):
        most = max([max(row.score, 0.0) for row in rows], default=0.0)
        values = []
        for row in rows:
            worth = row.score
            if self.config.novelty != 0:
                share = max(row.score, 0.0) / most if most > 0 else 0.0
                worth = share + self.config.novelty * row.novelty
            stays = self.protected(row.position, recent_from) or (holds and row.held)
            values.append(np.inf if stays else worth)
        return values

    def evict(self, count):
        importance = self.importance(self.rows, self.seen - self.config.recent_budget)
        order = sorted(
            range(len(self.rows)), key=lambda i: (importance[i], self.rows[i].position)
        )
        victims = set(order[:count])
        self.rows = [row for i, row in enumerate(self.rows) if i not in victims]

    # recall

    def archive(self, k, v):
        bits, group, total = (
            self.recall and self.recall.archive_bits,
            self.storage.group,
            self.sum,
        )
        if bits is None:
            return
        for t in range(len(k)):
            total, novelty = self.followed(total, k[t].astype(np.float64), self.seen + t)
            finite = np.isfinite(k[t]).all() or bits == 16
            self.old_keys.append(rounded(k[t], bits, group) if finite else k[t] * np.nan)
            self.old_values.append(rounded(v[t], bits, group))
            self.old_novelty.append(novelty)

    def room(self):
        """Rows that a recall chooses at most."""
        config = self.config
        fixed = set(range(config.sink_size)).union(
            *(range(begin, end) for begin, end in config.pinned)
        )
        rows = self.recall.rows or max(16, min(config.max_size // 2, 64))
        return min(rows, config.max_size - 1 - len(fixed) - config.recent_budget)

    def wanted(self, q, k, scale, sinks):
        """Positions from the one that is asked for most."""
        count, tokens = self.seen, len(k)
        keys = np.concatenate([np.stack(self.old_keys), k.astype(np.float64)])
        largest = np.zeros(count)
        visible = np.zeros(count, bool)
        for t in range(tokens):
            logits = scale * (q[:, t] @ keys[: count + t + 1].T)
            largest = np.maximum(largest, softmax(logits, sinks).mean(axis=0)[:count])
            visible |= np.isfinite(logits[:, :count]).any(axis=0)
        recent_from = count + tokens - self.config.recent_budget
        stays = [self.protected(j, recent_from) for j in range(count)]
        largest[stays] = 0
        after, before = self.recall.spread, self.recall.before
        best = [largest[max(0, j - after) : j + before + 1].max() for j in range(count)]
        least = largest.max() * self.recall.threshold / 100
        candidates = [
            (-best[j], j)
            for j in range(count)
            if visible[j] and best[j] > 0 and best[j] >= least and not stays[j]
        ]
        return [j for _, j in sorted(candidates)][: self.room()]

    def bring_back(self, q, k, scale, sinks):
        positions = self.wanted(q, k, scale, sinks)
        recent_from = self.seen + len(k) - self.config.recent_budget
        if len(k) == 1:  # its row is the new token's already
            self.rows = [row for row in self.rows if row.position != self.victim]
        resident = self.rows
        here = {row.position for row in resident}
        coming = [position for position in positions if position not in here]
        importance = self.importance(resident, recent_from, holds=False)
        going = sorted(
            (worth, row.position)
            for worth, row in zip(importance, resident, strict=True)
            if np.isfinite(worth) and row.position not in positions
        )
        coming = sorted(coming[: len(going)])
        going = {position for _, position in going[: len(coming)]}
        # In ascending order of their places, of which those of the ring come last.
        places = sorted(row.in_ring for row in resident if row.position in going)
        self.rows = [row for row in self.rows if row.position not in going]
        for row in self.rows:
            row.held = row.position in positions and row.position in here
        for position, in_ring in zip(coming, places, strict=True):
            bits = (self.storage.key, self.storage.value)
            if in_ring:
                bits = (self.storage.recent, self.storage.recent)
            self.rows.append(
                Row(
                    position,
                    rounded(self.old_keys[position], bits[0], self.storage.group),
                    rounded(self.old_values[position], bits[1], self.storage.group),
                    self.old_novelty[position],
                    held=True,
                    in_ring=in_ring,
                )
            )


def softmax(logits, sinks):
    """Shares [G, N] of logits [G, N]; what is not finite gets none."""
    finite = np.isfinite(logits)
    rest = np.full((len(logits), 1), -np.inf) if sinks is None else sinks[:, None]
    most = np.maximum(np.where(finite, logits, -np.inf).max(axis=1, keepdims=True), rest)
    most = np.where(np.isfinite(most), most, 0.0)
    weights = np.where(finite, np.exp(np.where(finite, logits, 0.0) - most), 0.0)
    total = weights.sum(axis=1, keepdims=True) + np.exp(rest - most)
    return np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)


class BruteCache:
    """A batch of heads."""

    def __init__(self, config, storage, batch, kv_heads):
        self.heads = [[Head(config, storage) for _ in range(kv_heads)] for _ in range(batch)]

    def step(self, q, k, v, scale, sinks=None):
        """Attention [B, Hq, L, D] of arrays of MLX."""
        q, k, v = (np.array(array.astype(mx.float32), np.float64) for array in (q, k, v))
        group = q.shape[1] // k.shape[1]
        sinks = None if sinks is None else np.array(sinks, np.float64)
        outs = []
        for b, heads in enumerate(self.heads):
            for h, head in enumerate(heads):
                group_heads = slice(h * group, (h + 1) * group)
                own = None if sinks is None else sinks[group_heads]
                outs.append(head.step(q[b, group_heads], k[b, h], v[b, h], scale, own))
        return np.concatenate(outs).reshape(q.shape[0], q.shape[1], q.shape[2], -1)

    def kept(self):
        return [[head.kept for head in heads] for heads in self.heads]

    def held(self):
        return [[head.held for head in heads] for heads in self.heads]
