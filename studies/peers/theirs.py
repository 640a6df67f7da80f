"""kvpress: the whole context with full attention, then one compression."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import kvpress
import torch
from transformers import AutoModelForCausalLM, DynamicCache

from studies.peers.entries import ANSWER_TOKENS
from studies.peers.tasks import Batch

PRESSES: dict[str, Callable[[float], Any]] = {
    "ObservedAttention": kvpress.ObservedAttentionPress,
    "SnapKV": kvpress.SnapKVPress,
    "ExpectedAttention": kvpress.ExpectedAttentionPress,
    "KeyDiff": kvpress.KeyDiffPress,
    "StreamingLLM": kvpress.StreamingLLMPress,
    "TOVA": kvpress.TOVAPress,
    "Knorm": kvpress.KnormPress,
    "LagKV": kvpress.LagKVPress,
    "random": kvpress.RandomPress,
}
"""Presses with their defaults but for how much they take away."""


class Peer:
    """The model in transformers, float32, with attention that shows its weights."""

    def __init__(self, folder: Path, threads: int) -> None:
        torch.set_num_threads(threads)
        self.model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager"
        ).eval()

    @torch.no_grad()
    def logits(self, ids: list[list[int]]) -> torch.Tensor:
        """Return logits [B, T, V] without a cache."""
        logits: torch.Tensor = self.model(torch.tensor(ids), use_cache=False).logits
        return logits

    @torch.no_grad()
    def read(self, context: list[list[int]], press: str, rows: int) -> tuple[Any, torch.Tensor]:
        """Read contexts [B][T] and keep `rows` rows; returns the cache and the last logits.

        An empty press keeps everything.

        Raises:
            RuntimeError: the press kept another number of rows.

        """
        cache = DynamicCache()
        length = len(context[0])
        compressing = nullcontext()
        if press:
            torch.manual_seed(0)
            half = 0.5  # of a row, so that rounding down gives the rows that are wanted
            compressing = PRESSES[press](1 - (rows + half) / length)(self.model)
        with compressing:
            logits = self.model(torch.tensor(context), past_key_values=cache).logits[:, -1]
        kept = {layer.keys.shape[2] for layer in cache.layers}
        if kept != {rows if press else length}:
            raise RuntimeError(f"{press} kept {kept} rows, not {rows}")
        return cache, logits

    @torch.no_grad()
    def step(self, cache: Any, ids: torch.Tensor, position: int) -> torch.Tensor:
        """Feed ids [B, L] from a position on; returns logits [B, L, V]."""
        positions = torch.arange(position, position + ids.shape[1])[None]
        logits: torch.Tensor = self.model(
            ids, past_key_values=cache, position_ids=positions.expand(len(ids), -1)
        ).logits
        return logits

    def answers(self, batch: Batch, press: str, rows: int) -> list[list[int]]:
        """Return what is said to each question, greedily, as ids."""
        cache, _ = self.read(batch.context, press, rows)
        position = len(batch.context[0])
        fed = torch.tensor(batch.after)
        said = []
        for _ in range(ANSWER_TOKENS):
            logits = self.step(cache, fed, position)[:, -1]
            position += fed.shape[1]
            fed = logits.argmax(-1, keepdim=True)
            said.append(fed)
        spoken: list[list[int]] = torch.cat(said, 1).tolist()
        return spoken

    def losses(self, batch: Batch, press: str, rows: int) -> list[float]:
        """Return each sample's mean -ln p of the text that follows its context."""
        cache, last = self.read(batch.context, press, rows)
        after = torch.tensor(batch.after)
        logits = self.step(cache, after[:, :-1], len(batch.context[0]))
        logits = torch.cat((last[:, None], logits), 1)
        told = logits.log_softmax(-1).gather(-1, after[..., None])[..., 0]
        losses: list[float] = (-told.mean(1)).tolist()
        return losses
