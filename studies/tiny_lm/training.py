"""The training loop: from samples to float32 weights and the curve of the losses."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

import numpy as np
import torch
from torch.nn import functional

from studies.tiny_lm.model import LanguageModel, Precision
from studies.tiny_lm.muon import Muon
from studies.tiny_lm.recipe import Architecture, Recipe, Stage
from studies.tiny_lm.samples import Sample, SampleMaker

STEPS_A_POINT = 20
ADAM_BETAS = (0.9, 0.98)
LONGEST_GRADIENT = 1.0


@dataclass(frozen=True)
class Point:
    """The mean losses of some steps, in nats per token, up to `tokens` seen."""

    step: int
    tokens: int
    length: int
    text: float
    answers: float
    rate: float


@dataclass
class Curve:
    """What the loss did, and how long it took."""

    points: list[Point] = field(default_factory=list)
    minutes: float = 0.0

    def document(self) -> dict[str, object]:
        """Return the curve as it is written to JSON."""
        return {"minutes": round(self.minutes, 1), "points": [asdict(p) for p in self.points]}


class Trainer:
    """Holds the model and both optimizers of one run."""

    def __init__(self, shape: Architecture, recipe: Recipe, maker: SampleMaker) -> None:
        torch.manual_seed(recipe.seed)
        self.recipe = recipe
        self.maker = maker
        self.model = LanguageModel(shape, Precision(recipe.bits, recipe.group_size))
        self.forward = torch.compile(self.model, dynamic=False)
        matrices, others = [], []
        for name, weight in self.model.named_parameters():
            inside = "proj" in name
            (matrices if inside else others).append(weight)
        self.others = others
        self.muon = Muon(matrices, recipe.weight_decay)
        self.adam = torch.optim.AdamW(others, betas=ADAM_BETAS, eps=1e-10, weight_decay=0.0)

    def run(self, say: Callable[[str], None]) -> Curve:
        """Go through all stages; `say` gets a line every few steps."""
        curve = Curve()
        started = time.monotonic()
        step = tokens = 0
        for stage in self.recipe.stages:
            losses: list[tuple[float, float]] = []
            for _ in range(stage.steps):
                losses.append(self.step(step, stage))
                step += 1
                tokens += stage.batch
                if step % STEPS_A_POINT == 0:
                    point = self.point(step, tokens, stage, losses)
                    curve.points.append(point)
                    curve.minutes = (time.monotonic() - started) / 60
                    say(f"{curve.minutes:5.1f} min  {point}")
                    losses = []
        curve.minutes = (time.monotonic() - started) / 60
        return curve

    def point(
        self, step: int, tokens: int, stage: Stage, losses: list[tuple[float, float]]
    ) -> Point:
        """Average the losses of the steps since the last point."""
        text, answers = np.nanmean(np.array(losses), axis=0).tolist()
        rate = self.recipe.rate(step)
        return Point(
            step, tokens, stage.length, round(text, 4), round(answers, 4), round(rate, 4)
        )

    def step(self, step: int, stage: Stage) -> tuple[float, float]:
        """Take one optimizer step; returns the losses of text and of answers."""
        recipe = self.recipe
        late = step >= recipe.steps / 2
        copy_share = recipe.late_copy_share if late else recipe.copy_share
        count = stage.batch // stage.length
        inputs, targets, weights = stack(self.maker.batch(stage.length, count, copy_share))
        self.model.precision.on = recipe.quantizes(step)
        with torch.autocast("cpu", torch.bfloat16):
            logits = self.forward(inputs)
        losses = functional.cross_entropy(
            logits.float().flatten(0, 1), targets.flatten(), reduction="none"
        )
        ((losses * weights).sum() / weights.sum()).backward()
        torch.nn.utils.clip_grad_norm_(self.others, LONGEST_GRADIENT)
        rate = recipe.rate(step)
        for group in self.adam.param_groups:
            group["lr"] = recipe.adam_rate * rate
        self.adam.step()
        self.muon.step(recipe.muon_rate * rate)
        self.model.zero_grad(set_to_none=True)
        losses = losses.detach()
        answers = losses[weights == recipe.answer_weight]
        return (
            losses[weights == 1].mean().item(),
            answers.mean().item() if len(answers) else math.nan,
        )


def stack(samples: list[Sample]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return inputs [B, T], targets [B, T] and the targets' weights [B * T]."""
    tokens = torch.from_numpy(np.stack([each.tokens for each in samples])).long()
    weights = torch.from_numpy(np.stack([each.weights for each in samples]))
    return tokens[:, :-1], tokens[:, 1:], weights[:, 1:].flatten()


def use_threads(count: int, seed: int) -> random.Random:
    """Set the number of threads; returns the random numbers of the samples."""
    torch.set_num_threads(count)
    return random.Random(seed)  # noqa: S311 - nothing is secret here
