"""What a trace says of a run, beside its arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

FORMAT = 4

# Largest difference of outputs allowed between two implementations, relative to
# the largest output of the step where that is above 1. An output is a mean of
# values, so its error follows their size. float32: some hundred roundings of
# 6e-8 each, in another order. float16 and bfloat16: two sums that straddle a
# rounding boundary differ by a unit in the last place, 2**-10 and 2**-7 of the
# value; twice that is allowed.
TOLERANCES = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1.6e-2}

# Scores are float32 whatever the dtype, and follow logits that are sums of up to
# some hundred products: ten times the tolerance of float32 outputs.
SCORE_TOLERANCE = 1e-4


@dataclass(frozen=True)
class RecordedCase:
    """An entry of trace.json. steps: new tokens of each call of the model."""

    name: str
    file: str
    dtype: str
    layers: int
    scale: float
    routed: bool
    kv: str
    group_size: int
    config: dict[str, Any]
    steps: tuple[int, ...]
    tolerance: float
    score_tolerance: float = SCORE_TOLERANCE
