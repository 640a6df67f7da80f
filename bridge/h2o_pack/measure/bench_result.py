"""The document of measured speed and memory, which `bench --json` and a package's app write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from h2o_pack.measure.machine import Machine
from h2o_pack.results import Count, Result, doc

Positive = Annotated[float, Meta(gt=0, lt=1e15)]
"""A finite number above 0."""


@dataclass(frozen=True)
class CacheSpeed:
    """The speed of a model with a kind of cache after a prompt, and the size of the caches."""

    name: str
    title: str
    prompt_tokens: Annotated[
        Count,
        doc("Tokens of the prompt; if there are more than max_kv, bounded caches evict."),
    ]
    tokens_per_second: Annotated[Positive, doc("Computed from the median time of a token.")]
    prompt_tokens_per_second: Annotated[
        Positive | None,
        doc("Speed of reading the prompt, measured once; null for a prompt of one token."),
    ]
    microseconds: Annotated[Positive, doc("Per token, the median of all repetitions.")]
    first_quartile: Annotated[Positive, doc("Microseconds per token.")]
    third_quartile: Annotated[Positive, doc("Microseconds per token.")]
    bytes: Annotated[
        Count, doc("Size of the caches of all layers at the end, with their archives.")
    ]
    peak_bytes: Annotated[
        Count,
        doc("Most bytes of MLX's arrays while the prompt was read, without the weights."),
    ]
    speed: Annotated[
        Positive | None,
        doc("Tokens per second, relative to mlx-lm's KVCache; null in an app."),
    ] = None


@dataclass(frozen=True)
class NotMeasured:
    """A cache that was not measured after a prompt."""

    name: str
    prompt_tokens: Count
    reason: Annotated[str, doc("Why it was not measured.")]


@dataclass(frozen=True, kw_only=True)
class BenchResult(Result):
    """Tokens per second and bytes of a model's caches on a machine."""

    machine: Machine
    model: str
    dtype: Annotated[str, doc("Data type of keys and values.")]
    layers: Count
    max_kv: Annotated[
        Count | None,
        doc("Rows that each KV head of an H2O cache keeps; null if it keeps every token."),
    ]
    prefill_step: Annotated[Count, doc("Tokens of a prompt that the model reads at once.")]
    tokens: Annotated[Count, doc("Tokens generated with each cache.")]
    weights_bytes: Annotated[Count, doc("Size of the model's weights.")]
    footprint_bytes: Annotated[
        Count | None,
        doc("Most memory of the process so far; null if the system does not report it."),
    ]
    thermal_state: Annotated[
        Literal["", "nominal", "fair", "serious", "critical"],
        doc("The device's thermal state after three minutes of work; empty if unknown."),
    ] = ""
    kernels: Annotated[
        tuple[str, ...],
        doc("Metal kernels that wrote scores; none on a CPU and in an app."),
    ] = ()
    caches: tuple[CacheSpeed, ...]
    not_measured: Annotated[
        tuple[NotMeasured, ...],
        doc("Caches that the model cannot use, and prompts that are too long."),
    ]
