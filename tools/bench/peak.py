"""Measures the most multiply-adds per second that one core can do.

This is the speed of numpy's float32 matrix product on one thread, in a new process. MLX's own
product cannot be used: its wheel for Linux contains the reference BLAS, which reaches a few
percent of a core's speed. numpy uses OpenBLAS. Its product of 768 x 768 matrices fits into the
core's caches, and is within a few percent of a loop of fused multiply-adds in registers (on a
machine with AVX-512, 133e9 to 137e9 per second, compared with 136e9 for the loop). A new
process is needed because OpenBLAS sets its number of threads when it is loaded.

OpenBLAS chooses kernels by the processor's name, and uses AVX2 for an unknown name, which
reaches half of the peak on that machine. So if the core has AVX-512, its AVX-512 kernels are
tried too, and the best of all rounds counts. On a Mac, numpy uses Apple's Accelerate with the
matrix unit beside the cores, so that shares of the peak are too small.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

import numpy as np

SIZE = 768
ROUNDS = 40
_ONE_THREAD = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def multiply_adds_per_second(instruction_set: str) -> float:
    """Measure the most float32 multiply-adds per second that one core does.

    Args:
        instruction_set: the one that `h2o_py`'s compiled core uses.

    """
    environment = {**os.environ, **dict.fromkeys(_ONE_THREAD, "1")}
    kernels: list[dict[str, str]] = [{}]
    if instruction_set == "avx512":
        kernels.append({"OPENBLAS_CORETYPE": "SkylakeX"})
    rates = []
    for choice in kernels:
        process = subprocess.run(  # noqa: S603  runs this module with this interpreter
            [sys.executable, "-m", __name__],
            env={**environment, **choice},
            capture_output=True,
            text=True,
            check=True,
        )
        rates.append(float(process.stdout))
    return max(rates)


def _best_rate() -> float:
    left, right = np.ones((2, SIZE, SIZE), np.float32)
    out = np.empty_like(left)
    best = 0.0
    for _ in range(ROUNDS):
        start = time.perf_counter()
        np.matmul(left, right, out=out)
        best = max(best, SIZE**3 / (time.perf_counter() - start))
    return best


if __name__ == "__main__":
    sys.stdout.write(f"{_best_rate()}\n")
