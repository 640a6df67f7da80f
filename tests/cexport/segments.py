"""Small segments, and a folder opened for a test."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import pytest

from h2o_py._compiled import ext
from h2o_py.errors import H2OFileError

HEADS, WORDS, KEY_BYTES = 4, 6, 8  # of uint32 words, two are the key's
FORMAT = "4-64-float16"
ROW_BYTES = 4 * WORDS


def segment(seed: int) -> mx.array:
    """Rows [2, 2, 256, WORDS]."""
    key = mx.random.key(seed)
    return mx.random.randint(0, 2**31 - 1, (2, 2, 256, WORDS), mx.int32, key).astype(mx.uint32)


def row_of(seed: int, token: int, head: int) -> bytes:
    """What `row` gives of `segment(seed)`."""
    return bytes(memoryview(segment(seed).reshape(HEADS, 256, WORDS)[head, token]))


def opened(path: Path, mark: tuple[str, int, str] | None = None) -> ext.SegmentFolder:
    return ext.open_segment_folder(str(path), mark)


def refusal(path: Path, mark: tuple[str, int, str] | None = None) -> tuple[str, str, str]:
    """Why a folder is refused: the code, the path and the reason."""
    with pytest.raises(H2OFileError) as error:
        opened(path, mark)
    return error.value.code, error.value.values["path"], error.value.values["reason"]


def append(folder: ext.SegmentFolder, seed: int, *, may_wait: bool = True) -> int:
    return folder.append(segment(seed), KEY_BYTES, FORMAT, may_wait)


def filled(path: Path, count: int) -> tuple[str, int, str]:
    """Write segments with seeds 0, 1, ...; close the folder; return its mark."""
    folder = opened(path)
    for seed in range(count):
        assert append(folder, seed) == seed
    assert folder.flush()
    return folder.mark(count - 1)


def assert_holds(folder: ext.SegmentFolder, serials: list[int]) -> None:
    """Rows of segments whose serials are their seeds are as they were written."""
    assert folder.serials == serials
    for serial in serials:
        for token, head in ((0, 0), (17, 1), (18, 2), (255, 3)):
            assert folder.row(serial, token, head, ROW_BYTES) == row_of(serial, token, head)
