"""Kills processes that write an archive, at random moments; prints how far each had come.

    python -m tests.cexport.killed_writers FOLDER KILLS

Each goes on where the last one that was heard of left off, in the same folder. What it finds
there must be what was written.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

import mlx.core as mx

from tests.cexport.segments import FORMAT, KEY_BYTES, ROW_BYTES, opened, row_of, segment

Mark = tuple[str, int, str]
BANK = [segment(seed) for seed in range(8)]  # MLX cannot compute in a forked child
TOKENS = (0, 100, 255)
WANTED = [[row_of(seed, token, 1) for token in TOKENS] for seed in range(len(BANK))]


def write_until_killed(path: Path, mark: Mark | None, marks: int) -> None:
    """Append segments and send each mark, a line of text, once it is reached."""
    folder = opened(path, mark)
    serials = folder.serials
    send(folder.mark(serials[-1] if serials else -1), marks)
    for i in range(len(serials), sys.maxsize):
        serial = folder.append(BANK[i % len(BANK)], KEY_BYTES, FORMAT, True)
        assert serial >= 0, folder.failure
        if random.random() < 0.5:  # noqa: S311  let some wait in line
            folder.flush()
            send(folder.mark(serial), marks)


def send(mark: Mark | None, marks: int) -> None:
    assert mark is not None
    os.write(marks, "{} {} {}\n".format(*mark).encode())


def killed(path: Path, mark: Mark | None) -> Mark:
    """Start a writer, kill it, and return the last mark that it sent."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        write_until_killed(path, mark, writer)
        os._exit(1)
    os.close(writer)
    with os.fdopen(reader, "rb") as lines:
        lines_sent = [lines.readline() for _ in range(random.randint(2, 4))]  # noqa: S311
        time.sleep(random.random() * 0.005)  # noqa: S311
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        lines_sent += [line for line in lines if line.endswith(b"\n")]
    session, count, chain = lines_sent[-1].decode().split()
    return session, int(count), chain


def check(path: Path, mark: Mark) -> int:
    """Read all that the mark promises; return how many segments that is."""
    folder = opened(path, mark)
    serials = folder.serials
    assert len(serials) == mark[1]
    for i, serial in enumerate(serials):
        rows = [folder.row(serial, token, 1, ROW_BYTES) for token in TOKENS]
        assert rows == WANTED[i % len(BANK)]
    return len(serials)


def main(path: Path, kills: int) -> None:
    mx.eval(BANK)
    mark = None
    for _ in range(kills):
        mark = killed(path, mark)
        sys.stdout.write(f"{check(path, mark)}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
