"""Random changes of arrays, texts and bytes."""

import json
import math
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random
from typing import Any

import mlx.core as mx

LARGEST = 2**31 - 1
COUNTS = [0, 1, 2, 3, 31, 32, 33, 63, 64, 65, 255, 256, 257, 2**15, 2**16, 2**20, 2**29, 2**30]
NUMBERS = [*COUNTS, LARGEST - 64, LARGEST - 2, LARGEST - 1, LARGEST]
INTEGERS = [*NUMBERS, *(-n for n in NUMBERS), -LARGEST - 1, 2**31, 2**32, 2**63, 2**64]
FLOATS = [0.0, -0.0, -1.0, 1.0, math.nan, math.inf, -math.inf, 3.4e38, -3.4e38, 1e-45, 0.5]
DTYPES = [mx.float32, mx.float16, mx.bfloat16, mx.int32, mx.uint32, mx.int8, mx.bool_, mx.int64]
JSON_VALUES: list[Any] = [None, True, [], {}, "", "peak", [[1, 2]], [[-1, 4]], [[0, LARGEST]]]
MOST_ELEMENTS = 2**26
"""Larger arrays are left out, unless their elements are too many for the core: MLX ends the
process if it gets no memory for what was asked."""
PLACE = "(the place of a value)"
TEXTS = ["", "x", "0", "-1", " 1", "1e9", "9" * 30, "null", "[" * 2000, "{", '"' * 9, "\x00"]


def integer(random: Random) -> int:
    """An integer that a check may forget."""
    return random.choice(INTEGERS) + random.choice([0, 0, 0, 1, -1])


def array(random: Random, original: mx.array) -> mx.array:
    """The array with other contents, another shape or dtype, or other strides."""
    change: Callable[[Random, mx.array], mx.array] = random.choice(
        [_contents, _contents, _contents, _shape, _shape, _dtype, _strides]
    )
    return change(random, original)


def text(random: Random, original: str) -> str:
    """The text, or the JSON in it, with something changed."""
    kind = random.randrange(4)
    if kind == 0:
        return random.choice(TEXTS)
    if kind == 1 and original.isdigit():
        return str(integer(random))
    if kind <= 2:
        with suppress(ValueError, RecursionError):
            return document(random, json.loads(original))
    return data(random, original.encode()).decode("utf-8", "replace")


def line(random: Random, original: str) -> str:
    """The line name=value with another value, or with something changed."""
    name, _, value = original.partition("=")
    return f"{name}={text(random, value)}" if random.random() < 0.8 else text(random, original)


def document(random: Random, values: Any) -> str:
    """JSON in which a value anywhere is another one, is gone, or has a key of its own twice."""
    values = json.loads(json.dumps(values))
    absurd: list[Any] = [*JSON_VALUES, *FLOATS, integer(random), 10 ** random.choice([20, 400])]
    absurd += ["x" * 70_000, "../../../evil", "/etc/passwd", "\x1b[2J", "\ud800", [None] * 5000]
    replacement = random.choice(
        [json.dumps(random.choice(absurd)), "9" * 5000, "[" * 9 + "]" * 9]
    )
    everywhere = [*places(values)]
    if not everywhere:
        return replacement
    holder, key = random.choice(everywhere)
    kind = random.randrange(6)
    old = json.dumps(holder.pop(key))
    if kind == 0:
        return json.dumps(values)
    name = f"{key}x" if kind == 1 else str(key)
    both = f"{old}, {json.dumps(name)}: {replacement}" if kind == 2 else replacement
    if isinstance(holder, dict):
        holder[name] = PLACE
        return json.dumps(values).replace(json.dumps(PLACE), both, 1)
    holder.insert(key, PLACE)
    return json.dumps(values).replace(json.dumps(PLACE), replacement, 1)


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each key of all objects, and each index of all lists, with the object or list."""
    if isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from places(value[key])


def data(random: Random, original: bytes) -> bytes:
    """The bytes with some flipped, cut, repeated or put in."""
    content = bytearray(original)
    for _ in range(random.choice([1, 1, 2, 8])):
        at = random.randrange(len(content) + 1)
        kind = random.randrange(5)
        if kind == 0:
            del content[at : at + random.choice([1, 4, 100, len(content)])]
        elif kind == 1:
            content[at:at] = random.randbytes(random.choice([1, 4, 100]))
        elif kind == 2:
            content[at:at] = content[at : at + random.choice([1, 8, 100])]
        elif at < len(content):
            content[at] = random.choice([0, 255, random.randrange(256), content[at] ^ 1])
    return bytes(content)


def _contents(random: Random, original: mx.array) -> mx.array:
    if original.size == 0 or original.nbytes > 1 << 20:
        return original
    raw = bytearray(memoryview(mx.contiguous(original).reshape(-1).view(mx.uint8)))
    size = original.itemsize
    for _ in range(random.choice([1, 1, 2, 5, 40])):
        at = random.randrange(len(raw) // size) * size
        if original.dtype == mx.int32:
            bits = struct.pack("<q", integer(random) % 2**63)[:4]
        elif original.dtype == mx.float32:
            bits = struct.pack("<f", random.choice(FLOATS))
        else:
            bits = random.choice([random.randbytes(size), b"\xff" * size, bytes(size)])
        everywhere = random.random() < 0.1
        for place in range(0, len(raw), size) if everywhere else [at]:
            raw[place : place + size] = bits
    if original.dtype == mx.bool_:
        raw = bytearray(byte & 1 for byte in raw)
    return mx.array(list(raw), mx.uint8).view(original.dtype).reshape(original.shape)


def _shape(random: Random, original: mx.array) -> mx.array:
    if original.ndim == 0:
        return original[None]
    axis = random.randrange(original.ndim)
    size = original.shape[axis]
    kind = random.randrange(7)
    if kind == 0:
        return mx.take(original, mx.arange(random.randrange(size + 1)), axis=axis)
    if kind == 1:
        return mx.concatenate([original] * random.choice([2, 3]), axis=axis)
    if kind == 2:
        return mx.expand_dims(original, axis)
    if kind == 3:
        return original.sum(axis=axis)
    if kind == 4:
        return mx.swapaxes(original, axis, random.randrange(original.ndim))
    if kind == 5:
        first = mx.take(original, mx.arange(min(1, size)), axis=axis)
        shape = [*original.shape]
        shape[axis] = random.choice([0, 1, 2, 7, size, 2**20, 2**30]) if size else 0
        if MOST_ELEMENTS < math.prod(shape) <= LARGEST:
            return original
        return mx.broadcast_to(first, shape) if size else first
    return original.reshape(-1)


def _dtype(random: Random, original: mx.array) -> mx.array:
    return original.astype(random.choice(DTYPES))


def _strides(random: Random, original: mx.array) -> mx.array:
    """The same array, lying otherwise in memory."""
    if original.ndim == 0:
        return original
    axis = random.randrange(original.ndim)
    kind = random.randrange(3)
    if kind == 0:
        doubled = mx.repeat(original, 2, axis=axis)
        return doubled[(slice(None),) * axis + (slice(None, None, 2),)]
    if kind == 1:
        wide = mx.concatenate([original, original], axis=axis)
        mx.eval(wide)
        return wide[(slice(None),) * axis + (slice(original.shape[axis], None),)]
    second_axis = random.randrange(original.ndim)
    turned = mx.contiguous(mx.swapaxes(original, axis, second_axis))
    return mx.swapaxes(turned, axis, second_axis)
