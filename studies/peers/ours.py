"""The real cache of h2o_py: token by token, and compressed once as kvpress does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_lm import load
from mlx_lm.models.cache import KVCache

from h2o_pack.measure.evaluation.cache_factory import CacheFactory
from h2o_pack.measure.evaluation.contenders import find_contender
from h2o_pack.measure.evaluation.loaded import LayerBudgetsSource, budgets_for
from h2o_pack.measure.text import Tokens
from h2o_py import install_routing
from studies.peers.entries import ANSWER_TOKENS, FULL, ONCE, PREFILL
from studies.peers.tasks import Batch

PROFILE = Path(__file__).parents[2] / "docs" / "results" / "profile" / "profile.json"


class GrowingCache:
    """Rows that an eviction left, and everything that comes after them.

    Args:
        keys: [B, Hkv, N, D], after RoPE.
        values: [B, Hkv, N, D].
        offset: tokens read so far, the position of the next one.

    """

    def __init__(self, keys: mx.array, values: mx.array, offset: int) -> None:
        self.keys = keys
        self.values = values
        self.offset = offset

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Append one token [B, Hkv, 1, D] and return all rows."""
        self.keys = mx.concatenate([self.keys, keys], axis=2)
        self.values = mx.concatenate([self.values, values], axis=2)
        self.offset += keys.shape[2]
        return self.keys, self.values

    def make_mask(self, length: int, **_: Any) -> None:
        """A single token sees all rows.

        Raises:
            ValueError: several tokens would need a mask.

        """
        if length > 1:
            raise ValueError("rows that are left take one token at a time")


class Ours:
    """The model in mlx-lm, float32 as its peer, with routed attention."""

    def __init__(self, folder: Path) -> None:
        self.model, self.tokenizer = load(str(folder))[:2]
        self.model.set_dtype(mx.float32)
        install_routing()
        tokens = Tokens(self.tokenizer, ())
        profiled = budgets_for(self.model, tokens, LayerBudgetsSource(profile=PROFILE))
        self.factory = CacheFactory(self.model, budgets=profiled)

    def logits(self, ids: list[list[int]]) -> mx.array:
        """Return logits [B, T, V] without a cache."""
        logits: mx.array = self.model(mx.array(ids))
        return logits

    def read(
        self, context: list[list[int]], policy: str, rows: int, protocol: str
    ) -> tuple[list[Any], mx.array]:
        """Read contexts [B][T]; returns the caches and the last logits [B, V]."""
        caches = self.caches(policy, rows)
        ids = mx.array(context)
        chunk = ids.shape[1] if protocol == ONCE else PREFILL
        logits = self.feed(caches, ids[:, :chunk])
        for column in range(chunk, ids.shape[1]):
            logits = self.feed(caches, ids[:, column : column + 1])
        if protocol == ONCE and policy != FULL:
            caches = [GrowingCache(each.keys, each.values, each.offset) for each in caches]
        return caches, logits

    def caches(self, policy: str, rows: int) -> list[Any]:
        """Return new caches of a policy, one per layer."""
        if policy == FULL:
            return [KVCache() for _ in self.model.layers]
        return self.factory.caches(find_contender(policy).with_rows(rows))

    def feed(self, caches: list[Any], ids: mx.array) -> mx.array:
        """Feed ids [B, L]; returns the last logits [B, V]."""
        logits: mx.array = self.model(ids, cache=caches)[:, -1]
        mx.eval(logits)
        return logits

    def answers(self, batch: Batch, policy: str, rows: int, protocol: str) -> list[list[int]]:
        """Return what is said to each question, greedily, as ids."""
        caches, logits = self.read(batch.context, policy, rows, protocol)
        question = mx.array(batch.after)
        for column in range(question.shape[1]):
            logits = self.feed(caches, question[:, column : column + 1])
        said = []
        for _ in range(ANSWER_TOKENS):
            word = mx.argmax(logits, axis=-1, keepdims=True)
            said.append(word)
            logits = self.feed(caches, word)
        spoken: list[list[int]] = mx.concatenate(said, axis=1).tolist()  # type: ignore[assignment]
        return spoken

    def losses(self, batch: Batch, policy: str, rows: int, protocol: str) -> list[float]:
        """Return each sample's mean -ln p of the text that follows its context."""
        caches, logits = self.read(batch.context, policy, rows, protocol)
        after = mx.array(batch.after)
        total = mx.zeros(after.shape[0])
        for column in range(after.shape[1]):
            word = after[:, column : column + 1]
            told = mx.take_along_axis(logits, word, axis=-1)[:, 0]
            total = total + mx.logsumexp(logits, axis=-1) - told
            logits = self.feed(caches, word)
        losses: list[float] = (total / after.shape[1]).tolist()  # type: ignore[assignment]
        return losses
