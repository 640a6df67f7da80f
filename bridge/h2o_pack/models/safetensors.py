"""Reads and checks the headers of safetensors files, from which sizes are known.

A file is 8 bytes with the length of a JSON header, the header, then the tensors' bytes:
https://huggingface.co/docs/safetensors
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

from h2o_pack.architectures.model import Tensor
from h2o_pack.errors import Problems, shown
from h2o_pack.models.json_file import parse_object

LENGTH = 8
MAX_HEADER = 100 << 20  # the format's own limit
MAX_DIMENSIONS = 32
# Bytes of an element of the types that mlx 0.31.1 loads (mlx/io/safetensors.cpp).
BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1,
    "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
    "U32": 4, "I32": 4, "F32": 4,
    "U64": 8, "I64": 8, "C64": 8,
}  # fmt: skip


def header_length(first: bytes, size: int, name: str, where: str) -> int:
    """Read the length of the header from a file's first 8 bytes.

    Args:
        first: the bytes.
        size: of the whole file.
        name: of the file.
        where: the model, for messages.

    Raises:
        UserError: it cannot be the length of a header of this file.

    """
    problems = Problems(where)
    if len(first) < LENGTH or size < LENGTH:
        problems.fail(f"{name} is not a safetensors file: it has {min(len(first), size)} bytes")
    length = int.from_bytes(first[:LENGTH], "little")
    if length > MAX_HEADER:
        problems.fail(
            f"{name} is not a safetensors file: its header would be {shown(length)} bytes "
            "long, and 100 MiB are the limit"
        )
    if length < len("{}") or LENGTH + length > size:
        problems.fail(
            f"{name} is cut short or damaged: its header would be {length} bytes long, and "
            f"the file has {size}"
        )
    return length


def parse_header(header: bytes, size: int, name: str, where: str) -> tuple[Tensor, ...]:
    """Read a header, and check it against the size of the whole file.

    Raises:
        UserError: all tensors whose description cannot be true.

    """
    document = parse_object(header, f"the header of {name}", where, MAX_HEADER, unique=True)
    problems = Problems(where)
    data = size - LENGTH - len(header)
    spans = []
    tensors = []
    for tensor, given in document.items():
        if tensor == "__metadata__":
            continue
        title = f"{name}: tensor {shown(tensor)}"
        try:
            begin, end = described(given, data)
        except ValueError as error:
            problems.add(f"{title} {error}")
            continue
        spans.append((begin, end, tensor))
        tensors.append(Tensor(tensor, given["dtype"], end - begin, tuple(given["shape"])))
    spans.sort()
    for (_, end, first), (begin, other_end, second) in pairwise(spans):
        if begin < end and begin < other_end:
            problems.add(
                f"{name}: tensors {shown(first)} and {shown(second)} share bytes of the file"
            )
    problems.refuse()
    return tuple(tensors)


def described(given: object, data: int) -> tuple[int, int]:
    """Return where a tensor lies in a file with `data` bytes; ValueError if it cannot."""
    if not isinstance(given, dict):
        raise ValueError(f"is {shown(given)} but should be an object")  # noqa: TRY004
    dtype, shape = given.get("dtype"), given.get("shape")
    if not isinstance(dtype, str) or dtype not in BYTES:
        raise ValueError(f"has the dtype {shown(dtype)}, which mlx cannot load")
    if not whole(shape) or len(shape) > MAX_DIMENSIONS:  # type: ignore[arg-type]
        raise ValueError("has no shape of whole numbers")
    offsets = given.get("data_offsets")
    if not whole(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:  # type: ignore[arg-type, index] # noqa: PLR2004
        raise ValueError("has no pair of data_offsets")
    begin, end = offsets  # type: ignore[misc]
    if end > data:
        raise ValueError(f"ends at byte {end}, and the file has {data}: it is cut short")
    wanted = math.prod(shape) * BYTES[dtype]  # type: ignore[arg-type]
    if wanted != end - begin:
        raise ValueError("does not have as many bytes as its shape and dtype need")
    return begin, end


def whole(value: object) -> bool:
    """Whether a value is a list of whole numbers, none below 0 nor above 2^63."""
    return isinstance(value, list) and all(
        isinstance(each, int) and not isinstance(each, bool) and 0 <= each < 1 << 63
        for each in value
    )


def read_tensors(path: Path) -> tuple[Tensor, ...]:
    """Read the header of a file on this machine; UserError when it is not one."""
    problems = Problems(str(path))
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = header_length(file.read(LENGTH), size, path.name, str(path))
            header = file.read(length)
    except OSError as error:
        problems.fail(f"{path.name} cannot be read: {error.strerror}")
    return parse_header(header, size, path.name, str(path))


def total(files: Mapping[str, tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    """Return the tensors of all files of a model."""
    return tuple(tensor for tensors in files.values() for tensor in tensors)
