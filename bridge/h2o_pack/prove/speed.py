"""Tokens per second of decoding and of reading a prompt, beside mlx-lm's own caches."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache

from h2o_pack.measure import models
from h2o_pack.measure.bench.caches import BY_NAME, MeasuredCache
from h2o_pack.measure.bench.options import LEAST_CAPACITY, Options
from h2o_pack.measure.bench.whole_model import caches_of, measure_model, repeated_prompt
from h2o_pack.measure.timing import Burst, interleave
from h2o_pack.prove.expected import RATIO
from h2o_pack.prove.ids import SPEED
from h2o_pack.prove.notes import Notes
from h2o_py.routing import routed

OWN = ("kv", "rotating", "kv-8bit")  # mlx-lm's
OURS = ("dense", "8bit", "k8v4", "4bit", "rotated-4bit", "mixed")
BESIDE = dict.fromkeys(("dense", "8bit", "k8v4", "4bit", "rotated-4bit"), "rotating")
"""The cache of mlx-lm with as many rows that each of ours stands beside."""
DECODING = "medians of interleaved bursts of mlx_lm's generate_step"
READING = "medians of prompts that mlx_lm's generate_step reads in chunks, in turn"
PROMPT, READINGS, CHUNK = 512, 5, 128


def prove_speed(notes: Notes, model_name: str, say: Callable[[str], None]) -> None:
    """Measure decoding with every kind of cache, and reading a prompt with three.

    Raises:
        UserError: the model cannot be loaded.

    """
    model, tokenizer = models.load(model_name)
    capacity = max(notes.setting.max_kv, LEAST_CAPACITY)
    options = Options(capacity=capacity, model=model_name, quick=True)
    caches = tuple(BY_NAME[name] for name in (*OWN, *OURS))
    say("tokens per second")
    decoded = measure_model(caches, options, model, tokenizer)
    for cache in caches:
        name = f"{SPEED}/decode/{cache.name}"
        if cache.name in decoded.timings:
            speed = decoded.timings[cache.name].tokens_per_second
            notes.note(name, speed, "tokens/s", f"{cache.title}; {DECODING}")
        else:
            notes.skip(name, "tokens/s", DECODING, decoded.not_run[cache.name])
    for ours, own in BESIDE.items():
        note_beside(notes, "decode", ours, own)
    say("tokens per second of a prompt")
    for name, speed in read_prompts(model, tokenizer, capacity).items():
        title = BY_NAME[name].title
        notes.note(f"{SPEED}/prefill/{name}", speed, "tokens/s", f"{title}; {READING}")
    note_beside(notes, "prefill", "dense", "rotating")


def note_beside(notes: Notes, what: str, ours: str, own: str) -> None:
    """Note how many times the speed of mlx-lm's cache ours has."""
    of, over = f"{SPEED}/{what}/{ours}", f"{SPEED}/{what}/{own}"
    how = f"{BY_NAME[ours].title} over {BY_NAME[own].title}"
    notes.note_ratio(f"{SPEED}/{RATIO}/{what}/{ours}", of, over, how)


def read_prompts(model: Any, tokenizer: Any, capacity: int) -> dict[str, float]:
    """Return tokens per second of reading a prompt, by cache."""
    prompt = repeated_prompt(tokenizer, PROMPT)
    names = ("kv", "rotating", "dense")
    with routed():
        bursts = {name: reading(BY_NAME[name], capacity, model, prompt) for name in names}
        timings = interleave(bursts, READINGS, steps=1)
    return {name: 1e6 / timing.median for name, timing in timings.items()}


def reading(kind: MeasuredCache, capacity: int, model: Any, prompt: mx.array) -> Burst:
    """Return bursts that read a prompt with new caches, in microseconds per token."""
    upstream = importlib.import_module("mlx_lm.generate")

    def burst(steps: int) -> float:
        start = time.perf_counter_ns()
        for _ in range(steps):
            caches = caches_of(kind, capacity, make_prompt_cache(model))
            steps_made = upstream.generate_step(
                prompt, model, max_tokens=1, prompt_cache=caches, prefill_step_size=CHUNK
            )
            next(steps_made)
            mx.synchronize(upstream.generation_stream)
        return (time.perf_counter_ns() - start) / 1e3 / steps / prompt.size

    return burst
