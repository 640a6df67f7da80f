"""Level 0: one layer's kernels on this machine's GPU, against h2o_py.reference.

Level 1 replays a model's own shapes; here are those that it does not have.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import mlx.core as mx

from h2o_pack.parity import op
from h2o_pack.parity.case import TOLERANCES, RecordedCase
from h2o_pack.parity.recorder import recording
from h2o_pack.parity.report import CaseResult, Difference
from h2o_pack.parity.trace import Trace
from h2o_py import fast
from h2o_py.config import H2OConfig
from h2o_py.models import STORAGES

HEADS, KV_HEADS = 8, 2
ROWS = 48
HEAD_DIMS = (64, 96, 128, 256)
QUANTIZED_DIMS = (64, 128)
GROUP_SIZE = 64
STEPS = (20, 1, 1, 40, *(1,) * 24, 3)
"""A prompt that fits, a chunk larger than what is free, steps that evict, a draft."""
COMPARED = "kernels on the GPU against h2o_py.reference, one layer"


@dataclass(frozen=True)
class Shape:
    """What a case is made with. kv: a name in h2o_py.models.STORAGES."""

    kv: str
    head_dim: int
    dtype: str

    @property
    def name(self) -> str:
        """As the report has it."""
        return f"{self.kv} {self.head_dim}"


def shapes() -> Iterator[Shape]:
    """Yield the cases: dense rows of all head dims and types, quantized ones in float16."""
    for dtype in TOLERANCES:
        for head_dim in HEAD_DIMS:
            yield Shape("dense", head_dim, dtype)
    for kv in STORAGES:
        for head_dim in QUANTIZED_DIMS if kv != "dense" else ():
            yield Shape(kv, head_dim, "float16")


def compare(shape: Shape, folder: Path) -> CaseResult:
    """Decode random tokens on the default device, and compare every step.

    A kernel that cannot run is a difference.
    """
    empty = CaseResult(
        name=shape.name,
        dtype=shape.dtype,
        layers=1,
        steps=len(STEPS),
        tolerance=TOLERANCES[shape.dtype],
    )
    try:
        return op.compare_case(Trace(folder, ()), recorded(shape, folder))
    except RuntimeError as error:  # MLX's, with Metal's words
        return empty.compared(Difference(0, 0, "error", f"it cannot run: {error}"))


def recorded(shape: Shape, folder: Path) -> RecordedCase:
    """Record one layer's steps by the compiled core on the default device."""
    mx.random.seed(0)
    config = small_config()
    cache = STORAGES[shape.kv](config, GROUP_SIZE)
    cache.__class__ = recording(type(cache))
    cache.backend = fast
    scale = shape.head_dim**-0.5
    arrays: dict[str, mx.array] = {}
    for step, tokens in enumerate(STEPS):
        keys, values = (random(shape, KV_HEADS, tokens) for _ in range(2))
        cache.update_and_fetch(keys, values)
        mask = "causal" if tokens > 1 else None
        cache.attend(random(shape, HEADS, tokens), scale=scale, mask=mask)
        taken = cache.taken()  # type: ignore[attr-defined]  # of the class that records
        arrays |= {f"0.{step}.{what}": array for what, array in taken.items()}
        mx.eval(arrays)
    file = f"{shape.name.replace(' ', '-')}-{shape.dtype}.safetensors"
    mx.save_safetensors(str(folder / file), arrays)
    return RecordedCase(
        name=shape.name,
        file=file,
        dtype=shape.dtype,
        layers=1,
        scale=scale,
        routed=True,
        kv=shape.kv,
        group_size=GROUP_SIZE,
        config=config.to_dict(),
        steps=STEPS,
        tolerance=TOLERANCES[shape.dtype],
    )


def small_config() -> H2OConfig:
    """Return the default policy with few rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few recent tokens
        return H2OConfig(ROWS)


def random(shape: Shape, heads: int, tokens: int) -> mx.array:
    """Return random numbers [1, heads, tokens, D]."""
    numbers = mx.random.normal((1, heads, tokens, shape.head_dim))
    return numbers.astype(getattr(mx, shape.dtype))
