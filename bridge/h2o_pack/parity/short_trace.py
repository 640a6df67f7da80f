"""A trace short enough for an app: random tokens through one layer's cache, on the CPU.

It has a package's policy and storage with few rows, so that eviction begins after a few
tokens. A device computes in another order, and so with other roundings: the tokens are
chosen so that no rounding decides what is kept, nor on which side of a code's boundary an
element falls.
"""

from __future__ import annotations

import base64
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import accumulate
from typing import Any

import mlx.core as mx

from h2o_pack.parity.arrays import safetensors
from h2o_pack.parity.case import FORMAT, TOLERANCES, RecordedCase
from h2o_pack.parity.one_layer import OneLayer, Tokens
from h2o_py.config import H2OConfig
from h2o_py.reference_rotation import as_stored
from h2o_py.row_format import RowFormat
from h2o_py.storages import STORAGE_BITS

NAME = "own settings"
DTYPES = ("float32", "float16")
INPUTS, INPUTS_TYPE = "inputs", "float16"
ROWS, RECALLING_ROWS = 16, 24
QUERIES_PER_HEAD = 2
LARGEST_OF_TWO_HEADS = 64  # elements of a key; longer ones have one head, for the file's size
RECALLED = {"rows": 4, "spread": 1, "ask": 4, "every": 3}
LARGEST, STEP = 2047, 1024  # inputs are whole numbers up to LARGEST over STEP, as float16 has
ROUNDING = 2e-6  # of a vector's largest element: some 16 roundings of float32
MOVES = (1e-4, 1e-5, 0.0)
SEEDS, DRAWS = 16, 6
CANDIDATES = 4
OWN_DTYPE = 16  # bits that stand for no quantization


@dataclass(frozen=True)
class Settings:
    """What a package's layers keep, and how. dims: elements of a key and of a value."""

    config: H2OConfig
    kv: str
    group_size: int
    dims: tuple[int, int]

    @property
    def heads(self) -> int:
        """KV heads of the trace."""
        return 2 if max(self.dims) <= LARGEST_OF_TWO_HEADS else 1

    @property
    def scale(self) -> float:
        """Of q.k."""
        return float(self.dims[0] ** -0.5)


def short_trace(settings: Settings) -> dict[str, Any]:
    """Return the trace as JSON has it, its files of arrays in base64."""
    small = replace(settings, config=scaled(settings.config))
    steps = spans(steps_of(small.config))
    with mx.stream(mx.cpu):
        tokens = decided(small)
        inputs = [vars(tokens.part(*step).of(INPUTS_TYPE)) for step in steps]
        answers = {dtype: answered(small, tokens, dtype) for dtype in DTYPES}
        arrays = {INPUTS: inputs, **answers}
        files = {name: base64.b64encode(named(each)).decode() for name, each in arrays.items()}
    cases = [asdict(case_of(small, dtype)) for dtype in DTYPES]
    return {"format": FORMAT, "cases": cases, "files": files}


def case_of(settings: Settings, dtype: str) -> RecordedCase:
    """Return a case as traces list it."""
    return RecordedCase(
        name=NAME,
        file=dtype,
        dtype=dtype,
        layers=1,
        scale=settings.scale,
        routed=True,
        kv=settings.kv,
        group_size=settings.group_size,
        config=settings.config.to_dict(),
        steps=steps_of(settings.config),
        tolerance=TOLERANCES[dtype],
    )


def scaled(config: H2OConfig) -> H2OConfig:
    """Return a policy with few rows, shared out as they were."""
    size = ROWS if config.recall is None else RECALLING_ROWS
    sinks = min(config.sink_size, 2)
    recent = round(size * config.recent_budget / config.max_size)
    recent = min(max(1, recent), size - sinks - 2)
    heavy = round(size * config.heavy_budget / config.max_size)
    recall = config.recall and replace(
        config.recall, **RECALLED, layers=None, store=None, limit=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few recent tokens
        return replace(
            config,
            max_size=size,
            sink_size=sinks,
            heavy_budget=min(heavy, size - sinks - recent),
            recent_budget=recent,
            pinned=((sinks, sinks + 1),) if config.pinned else (),
            observation_window=min(config.observation_window, 4),
            recall=recall,
        )


def steps_of(config: H2OConfig) -> tuple[int, ...]:
    """Return new tokens of each step.

    A prompt that leaves rows free, tokens that fill them, a chunk that evicts many at once,
    tokens that evict one, and a short prompt, which recalls.
    """
    size = config.max_size
    return (size - 4, *(1,) * 4, size // 2, *(1,) * 5, 4)


def spans(steps: tuple[int, ...]) -> list[tuple[int, int]]:
    """Return the first token of each step and the one after its last."""
    ends = list(accumulate(steps))
    return list(zip([0, *ends], ends, strict=False))


def decided(settings: Settings) -> Tokens:
    """Return tokens of which no rounding decides what is kept.

    The same is kept when all of them are moved a little; by less only where no draw holds
    still.
    """
    for by in MOVES:
        for seed in range(SEEDS):
            tokens = drawn(settings, mx.random.key(seed))
            kept = kept_of(settings, tokens)
            keys = mx.random.split(mx.random.key(SEEDS + seed), DRAWS)
            moved = (moved_by(by, tokens, key) for key in keys)
            if all(mx.array_equal(kept_of(settings, each), kept) for each in moved):
                return tokens
    raise AssertionError("what does not move keeps the same")


def moved_by(by: float, tokens: Tokens, key: mx.array) -> Tokens:
    """Return tokens with noise."""
    keys = mx.random.split(key, 3)
    parts = zip(vars(tokens).values(), keys, strict=True)
    return Tokens(*(each + by * mx.random.normal(each.shape, key=one) for each, one in parts))


def kept_of(settings: Settings, tokens: Tokens) -> mx.array:
    """Return what is kept after each step, and what of it a recall chose, in one array."""
    kept = [
        step[what].astype(mx.int32).reshape(-1)
        for step in answered(settings, tokens, "float32")
        for what in ("positions", "held")
        if what in step
    ]
    return mx.concatenate(kept)


def answered(settings: Settings, tokens: Tokens, dtype: str) -> list[dict[str, mx.array]]:
    """Return what the cache answers to each step: out, positions, scores and held."""
    layer = OneLayer(settings.config, settings.kv, settings.group_size, settings.scale)
    given = tokens.of(dtype)
    answers = []
    for step in spans(steps_of(settings.config)):
        answers.append(layer.step(given.part(*step)))
        mx.eval(answers[-1])
    return answers


def drawn(settings: Settings, key: mx.array) -> Tokens:
    """Draw float32 tokens."""
    count = sum(steps_of(settings.config))
    key_dim, value_dim = settings.dims
    of_q, of_k, of_v = mx.random.split(key, 3)
    queries = 2 * numbers((1, settings.heads * QUERIES_PER_HEAD, count, key_dim), of_q)
    keys, values = (
        settled(settings, dim, settings.heads * count, each).reshape(
            1, settings.heads, count, dim
        )
        for dim, each in ((key_dim, of_k), (value_dim, of_v))
    )
    return Tokens(queries, keys, values)


def numbers(shape: tuple[int, ...], key: mx.array) -> mx.array:
    """Draw float32 numbers that float16 has too."""
    return mx.random.randint(-LARGEST, LARGEST + 1, shape, key=key) / STEP


def settled(settings: Settings, dim: int, count: int, key: mx.array) -> mx.array:
    """Draw `count` vectors whose codes no rounding changes, [count, dim].

    Where too few of the candidates are so, others fill up.
    """
    of_numbers, of_signs = mx.random.split(key)
    vectors = numbers((CANDIDATES * count, dim), of_numbers)
    signs = 2.0 * mx.random.bernoulli(shape=vectors.shape, key=of_signs) - 1.0
    noise = ROUNDING * LARGEST / STEP * signs
    changed = mx.zeros(len(vectors), mx.int32)
    for bits, row_format in quantizations(settings):
        codes, *others = (
            mx.quantize(as_stored(each, row_format), settings.group_size, bits)[0]
            for each in (vectors, vectors + noise, vectors - noise)
        )
        changed += sum((codes != other).any(axis=-1) for other in others)
    return vectors[mx.argsort(changed)[:count]]


def quantizations(settings: Settings) -> Iterator[tuple[int, RowFormat]]:
    """Yield the bits at which a key or a value may be stored, and how it is turned before."""
    bits = STORAGE_BITS[settings.kv]
    plain = RowFormat(group_size=settings.group_size)
    rotated = replace(plain, rotated=bits.rotated)
    recall = settings.config.recall
    found = {(each, rotated) for each in (bits.key, bits.value, bits.recent or OWN_DTYPE)}
    found |= set() if recall is None else {(recall.archive_bits, plain)}
    return iter(sorted((each for each in found if each[0] != OWN_DTYPE), key=str))


def named(steps: list[dict[str, mx.array]]) -> bytes:
    """Return a file of a layer's arrays, by the names that traces have."""
    return safetensors(
        {f"0.{n}.{what}": each for n, step in enumerate(steps) for what, each in step.items()}
    )
