"""The most multiply-adds per second that one core can do.

The yardstick is numpy's float32 matrix product on one thread, in a process of its own.
MLX's product is none: its wheel for Linux comes with the reference BLAS, at a few percent
of the core. numpy comes with OpenBLAS, whose product of 768 x 768 matrices lives in the
core's caches and comes within a few percent of a loop of nothing but fused multiply-adds in
registers (133e9 to 137e9 per second against 136e9 where both were tried, AVX-512). The number
of threads is fixed when the library loads, hence the process of its own.

OpenBLAS picks kernels by the processor's name and takes AVX2 ones for a name it does not know
(half of the peak on that machine), so where the core has AVX-512 its AVX-512 kernels are
tried as well; the best of all rounds counts. On a Mac numpy uses Apple's Accelerate and with
it the matrix unit beside the core, so the share of the peak comes out too small there.
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
        instruction_set: what `h2o_py`'s compiled core chose.

    """
    environment = {**os.environ, **dict.fromkeys(_ONE_THREAD, "1")}
    kernels: list[dict[str, str]] = [{}]
    if instruction_set == "avx512":
        kernels.append({"OPENBLAS_CORETYPE": "SkylakeX"})
    rates = []
    for choice in kernels:
        process = subprocess.run(  # noqa: S603  this module, by this interpreter
            [sys.executable, "-m", __name__],
            env={**environment, **choice},
            capture_output=True,
            text=True,
            check=True,
        )
        rates.append(float(process.stdout))
    return max(rates)


def _best_rate() -> float:
    one, other = np.ones((2, SIZE, SIZE), np.float32)
    out = np.empty_like(one)
    best = 0.0
    for _ in range(ROUNDS):
        start = time.perf_counter()
        np.matmul(one, other, out=out)
        best = max(best, SIZE**3 / (time.perf_counter() - start))
    return best


if __name__ == "__main__":
    sys.stdout.write(f"{_best_rate()}\n")
