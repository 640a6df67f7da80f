"""Writes arrays as safetensors, with the same bytes on every system."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import accumulate
from typing import Any

import mlx.core as mx

KINDS = {mx.float32: "F32", mx.float16: "F16", mx.int32: "I32", mx.bool_: "BOOL"}
ALIGNED = 8


def safetensors(arrays: Mapping[str, mx.array]) -> bytes:
    """Return the bytes of a file of these arrays, in their order."""
    parts = {name: bytes_of(each) for name, each in arrays.items()}
    ends = list(accumulate(map(len, parts.values())))
    header = {
        name: {"dtype": KINDS[each.dtype], "shape": each.shape, "data_offsets": [begin, end]}
        for (name, each), begin, end in zip(arrays.items(), [0, *ends], ends, strict=False)
    }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNED)
    return len(text).to_bytes(ALIGNED, "little") + text + b"".join(parts.values())


def bytes_of(array: mx.array) -> bytes:
    """Return an array's numbers, row after row."""
    shown: Any = mx.contiguous(array)  # the stub does not say that it is a buffer
    return bytes(memoryview(shown))
