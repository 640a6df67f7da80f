"""Measures both models through mlx-lm on what training never saw."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from h2o_pack.measure.evaluation.tasks import ASKED_IN, Question, Shape, make_sample
from h2o_pack.measure.text import Part, Tokens, held_out
from studies.tiny_lm.files import sha256, write_json

LONGEST_STATEMENT = 24


@dataclass(frozen=True)
class Trial:
    """Facts asked for at one distance.

    Args:
        distance: least number of tokens between a statement and its question.
        others: facts of the same form between the two, never asked for.
        depth: where the fact stands, as a share of the text.
        window: rows of a RotatingKVCache(keep=4); 0 for the full cache.

    """

    distance: int
    others: int = 0
    depth: float = 0.1
    window: int = 0

    @property
    def shape(self) -> Shape:
        """How samples of the trial are built; the other facts keep equal distances."""
        length = math.ceil((self.distance + LONGEST_STATEMENT) / (1 - self.depth))
        gap = (1 - self.depth) / (self.others + 1)
        depths = tuple(self.depth + number * gap for number in range(self.others + 1))
        return Shape(length=length, depths=depths, asked=(0,))


DEMANDED = tuple(
    Trial(distance, others) for others in (0, 4) for distance in (256, 512, 1024, 1500)
)
"""The model must recall nearly everything in these."""

BEYOND = (Trial(1024, 12), Trial(1900, depth=0.02))
EVICTING = (Trial(256, window=512), Trial(1024, window=512))


def prompts(
    trial: Trial, tokens: Tokens, words: Sequence[str], seed: int, count: int
) -> list[tuple[tuple[int, ...], str]]:
    """Return `count` prompts as token ids, each with what a right answer contains."""
    made = []
    for number in range(count):
        sample = make_sample(tokens, words, trial.shape, seed, number)
        question: Question = sample.questions[0]
        if question.distance < trial.distance:
            raise ValueError(f"{question.distance} tokens between, not {trial.distance}")
        made.append(((*sample.ids, *question.ids), question.answer))
    return made


LONGEST_PROMPT = max(trial.shape.length for trial in (*DEMANDED, *BEYOND)) + ASKED_IN


MEASUREMENTS = "measurements.json"
FACTS = 100
SEED = 11
ANSWER_TOKENS = 6  # a space and four digits are five
WINDOW = 2048
PARTS: tuple[Part, ...] = ("source", "prose")

_worker: dict[str, Any] = {}


def measure(
    model: Path, variant: Path, records: Path, threads: int, say: Callable[[str], None]
) -> None:
    """Write recall and losses of both models.

    A model whose weights were measured before keeps what was found.
    """
    tokens = held_out_tokens(model)
    path = records / MEASUREMENTS
    earlier = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    document: dict[str, Any] = {
        "format": 1,
        "facts": FACTS,
        "seed": SEED,
        "window": WINDOW,
        # Of the text, not of a model: measured by commit eff7b2a1 of the project's history.
        **{key: earlier[key] for key in ("order", "ngram") if key in earlier},
        "models": measured_before(earlier, (model, variant)),
    }
    for folder in (model, variant):
        if folder.name in document["models"]:
            say(f"{folder.name} was measured before")
            continue
        with ProcessPoolExecutor(
            threads, mp_context=get_context("spawn"), initializer=load, initargs=(folder,)
        ) as pool:
            losses = {part: loss(pool, tokens[part]) for part in PARTS}
            say(f"{folder.name}: {losses}")
            words = held_out("source", model / "held_out").words
            recalls = []
            for trial in (*DEMANDED, *BEYOND, *EVICTING):
                recalls.append(recall(pool, trial, tokens["source"], words))
                say(f"{folder.name}: {recalls[-1]}")
        weights = folder / "model.safetensors"
        document["models"][folder.name] = {
            "sha256": sha256(weights),
            "bytes": weights.stat().st_size,
            "losses": losses,
            "recall": recalls,
        }
        write_json(path, document)


def measured_before(earlier: dict[str, Any], folders: Sequence[Path]) -> dict[str, Any]:
    """Return what is recorded of the very weights that lie in the folders."""
    models = earlier.get("models", {})
    return {
        folder.name: models[folder.name]
        for folder in folders
        if folder.name in models
        and models[folder.name]["sha256"] == sha256(folder / "model.safetensors")
    }


def held_out_tokens(model: Path) -> dict[str, Tokens]:
    """Return source and prose that were held out, as token ids."""
    from mlx_lm.utils import load_tokenizer  # slow to import

    tokenizer = load_tokenizer(model)
    return {
        part: Tokens(tokenizer, held_out(part, model / "held_out").documents) for part in PARTS
    }


def load(folder: Path) -> None:
    """Load the model into a worker process.

    Packed weights are multiplied in float32: on a CPU, MLX takes ten times longer in
    bfloat16, and the weights that they stand for are the same.
    """
    import mlx.core as mx  # only workers compute
    from mlx_lm import load as load_model  # slow to import

    _worker["model"], _worker["tokenizer"] = load_model(str(folder))[:2]
    if "quantization" in json.loads((folder / "config.json").read_text(encoding="utf-8")):
        _worker["model"].set_dtype(mx.float32)


def answer(prompt: Sequence[int], window: int) -> str:
    """Generate greedily after a prompt; in a worker."""
    import mlx.core as mx  # only workers compute
    from mlx_lm.generate import generate_step
    from mlx_lm.models.cache import RotatingKVCache, make_prompt_cache

    model = _worker["model"]
    cache = make_prompt_cache(model)
    if window:
        cache = [RotatingKVCache(max_size=window, keep=4) for _ in cache]
    steps = generate_step(
        mx.array(list(prompt)), model, max_tokens=ANSWER_TOKENS, prompt_cache=cache
    )
    said: str = _worker["tokenizer"].decode([token for token, _ in steps])
    return said


def total_loss(window: Sequence[int]) -> float:
    """Return the nats of all tokens of a window but the first; in a worker."""
    import mlx.core as mx

    ids = mx.array(list(window))
    logits = _worker["model"](ids[None, :-1])[0].astype(mx.float32)
    told = mx.take_along_axis(logits, ids[1:, None], axis=-1)[:, 0]
    return float((mx.logsumexp(logits, axis=-1) - told).sum().item())


def loss(pool: ProcessPoolExecutor, tokens: Tokens) -> dict[str, float]:
    """Return nats per token and bits per byte over windows that do not overlap."""
    ids = tokens.ids
    windows = [ids[start : start + WINDOW + 1] for start in range(0, len(ids) - 1, WINDOW)]
    nats = sum(pool.map(total_loss, windows))
    return per_token_and_byte(nats, tokens)


def per_token_and_byte(nats: float, tokens: Tokens) -> dict[str, float]:
    """Return a sum of nats over all tokens but the first as two means."""
    size = len(tokens.decode(tokens.ids).encode())
    return {
        "nats_a_token": round(float(nats) / (len(tokens.ids) - 1), 4),
        "bits_a_byte": round(float(nats) / math.log(2) / size, 4),
    }


def recall(
    pool: ProcessPoolExecutor, trial: Trial, tokens: Tokens, words: Sequence[str]
) -> dict[str, int]:
    """Return how many facts of a trial were answered right."""
    asked = prompts(trial, tokens, words, SEED, FACTS)
    said = pool.map(answer, [ids for ids, _ in asked], [trial.window] * FACTS)
    right = sum(code in text for (_, code), text in zip(asked, said, strict=True))
    return {
        "distance": trial.distance,
        "others": trial.others,
        "window": trial.window,
        "right": right,
    }
