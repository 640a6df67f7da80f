"""Steps on one core: what the core does for them, without waking another one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from h2o_pack.measure.timing import Burst

_THREADS = Path("/proc/self/task")


def on_one_core(burst: Burst) -> Burst:
    """Return the burst with all threads of the process on one core, if the system allows it.

    MLX evaluates on a thread of its own. Handing each step over to it costs tens of
    microseconds when that thread sleeps on another core, which is neither arithmetic nor
    memory; on one core the hand-over is short, and nothing runs in parallel.
    """

    def confined(steps: int) -> float:
        with one_core():
            return burst(steps)

    return confined


@contextmanager
def one_core() -> Iterator[None]:
    """Keep every thread on the first core that the process may use (Linux only)."""
    if not hasattr(os, "sched_setaffinity") or not _THREADS.is_dir():
        yield
        return
    threads = [int(each.name) for each in _THREADS.iterdir()]
    allowed = os.sched_getaffinity(0)
    _allow(threads, {min(allowed)})
    try:
        yield
    finally:
        _allow(threads, allowed)


def _allow(threads: list[int], cores: set[int]) -> None:
    for thread in threads:
        with suppress(ProcessLookupError):  # it has ended
            os.sched_setaffinity(thread, cores)
