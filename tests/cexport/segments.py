"""Small segments, and a folder opened for a test."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import pytest

from h2o_py._compiled import ext
from h2o_py.errors import H2OFileError

HEADS, WORDS, KEY_BYTES = 4, 6, 8  # of uint32 words, two are the key's
FORMAT = "4-64-float16"
KEYS, VALUES, NOVELTY = range(3)
PART_BYTES = (256 * KEY_BYTES, 256 * (4 * WORDS - KEY_BYTES), 256 * 4)


def segment(seed: int) -> tuple[mx.array, mx.array]:
    """Rows [2, 2, 256, WORDS] and novelty [2, 2, 256] of their own."""
    key = mx.random.key(seed)
    rows = mx.random.randint(0, 2**31 - 1, (2, 2, 256, WORDS), mx.int32, key)
    return rows.astype(mx.uint32), mx.random.uniform(shape=(2, 2, 256), key=key)


def part_of(seed: int, part: int, head: int) -> bytes:
    """What `read` gives of `segment(seed)`."""
    rows, novelty = segment(seed)
    if part == NOVELTY:
        return bytes(memoryview(novelty.reshape(HEADS, 256)[head]))
    cut = slice(0, KEY_BYTES // 4) if part == KEYS else slice(KEY_BYTES // 4, WORDS)
    return bytes(memoryview(mx.contiguous(rows.reshape(HEADS, 256, WORDS)[head, :, cut])))


def opened(path: Path, mark: tuple[str, int, str] | None = None) -> ext.SegmentFolder:
    return ext.open_segment_folder(str(path), mark)


def refusal(path: Path, mark: tuple[str, int, str] | None = None) -> tuple[str, str, str]:
    """Why a folder is refused: the code, the path and the reason."""
    with pytest.raises(H2OFileError) as error:
        opened(path, mark)
    return error.value.code, error.value.values["path"], error.value.values["reason"]


def append(folder: ext.SegmentFolder, seed: int, *, may_wait: bool = True) -> int:
    return folder.append(*segment(seed), KEY_BYTES, FORMAT, may_wait)


def filled(path: Path, count: int) -> tuple[str, int, str]:
    """Write segments with seeds 0, 1, ...; close the folder; return its mark."""
    folder = opened(path)
    for seed in range(count):
        assert append(folder, seed) == seed
    assert folder.flush()
    return folder.mark(count - 1)


def assert_holds(folder: ext.SegmentFolder, serials: list[int]) -> None:
    """Every part of segments whose serials are their seeds is as it was written."""
    assert folder.serials == serials
    for serial in serials:
        for part, size in enumerate(PART_BYTES):
            for head in range(HEADS):
                assert folder.read(serial, part, head, size) == part_of(serial, part, head)
