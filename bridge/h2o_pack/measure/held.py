"""Measures memory: MLX's arrays, the whole process, and runs of a model in a new process.

`python -m h2o_pack.measure.held MODEL '[[CACHE, MAX_KV, STEP, TOKENS], ...]'` prints, as a list
in JSON, the values of a `Held` for each run.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import platform
import resource
import subprocess
import sys
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import mlx.core as mx
import mlx.utils as mlx_utils
from mlx_lm.models.cache import RotatingKVCache, make_prompt_cache

import h2o_py
from h2o_pack.errors import internal_error
from h2o_pack.measure import models

GENERATED = 8
VOCABULARY = 1000  # of the prompt's random ids
FULL, WINDOW = "KVCache", "RotatingKVCache"
"""mlx-lm's own caches; all other names are storages of H2O caches."""

_LARGEST, _VERSION, _SIZE = 16 + 28 * 8, 4, 512
"""For struct rusage_info_v4 of <sys/resource.h>: the byte offset of its field
ri_lifetime_max_phys_footprint, its version, and a buffer size that is larger than the
struct."""


def active_memory() -> int:
    """Return the bytes of MLX's arrays, after waiting until evaluated arrays free their inputs.

    A stream's thread frees the inputs only after it has handed over the result.
    """
    gc.collect()
    mx.synchronize()
    return mx.get_active_memory()


def largest_footprint() -> int:
    """Return the process's largest memory so far, in bytes.

    On a Mac this is the footprint, whose size makes the system end apps; elsewhere it is the
    resident set size (RSS).
    """
    if platform.system() != "Darwin":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    usage = (ctypes.c_uint8 * _SIZE)()
    library = ctypes.CDLL("/usr/lib/libSystem.dylib", use_errno=True)
    if library.proc_pid_rusage(os.getpid(), _VERSION, ctypes.byref(usage)):
        raise OSError(ctypes.get_errno(), "proc_pid_rusage")
    return int.from_bytes(bytes(usage)[_LARGEST : _LARGEST + 8], "little")


class HeldRun(NamedTuple):
    """A run of a model with one kind of cache.

    max_kv: rows per KV head and layer. step: tokens of the prompt that are read at once.
    tokens: number of tokens of the prompt and the answer; the answer has `GENERATED`.
    """

    cache: str
    max_kv: int
    step: int
    tokens: int


class Held(NamedTuple):
    """Bytes of memory in a run.

    peak: the highest value of MLX's counter. rows, ledger: bytes in all H2O caches after the
    run; 0 with mlx-lm's caches. weights: the model's bytes. footprint: the largest memory of
    the process so far (`largest_footprint`).
    """

    peak: int
    rows: int
    ledger: int
    weights: int
    footprint: int


def held_by(model: str, runs: Sequence[HeldRun]) -> tuple[Held, ...]:
    """Measure runs of a model in one new process, whose libraries use one thread.

    Raises UserError with the internal-error exit code: the process failed.
    """
    command = [sys.executable, "-m", __name__, model, json.dumps(runs)]
    process = subprocess.run(  # noqa: S603 - runs this module with this interpreter
        command,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    if process.returncode:
        lines = process.stderr.strip().splitlines() or ["it printed nothing"]
        raise internal_error(
            f"measuring memory failed: {lines[-1]}",
            "Run the command again with --debug and report it.",
        )
    return tuple(Held(*values) for values in json.loads(process.stdout))


def measure(model: Any, run: HeldRun) -> Held:
    """Do one run and return the memory that it used."""
    generate = importlib.import_module("mlx_lm.generate")
    if run.cache == FULL:
        caches = make_prompt_cache(model)
    elif run.cache == WINDOW:
        caches = [RotatingKVCache(run.max_kv, keep=4) for _ in model.layers]
    else:
        caches = h2o_py.make_h2o_cache(model, h2o_py.H2OConfig(run.max_kv), kv=run.cache)
    prompt = mx.random.randint(0, VOCABULARY, (run.tokens - GENERATED,))
    mx.eval(prompt)
    # MLX may still be computing the token after the last one of the run before.
    mx.synchronize()
    mx.synchronize(generate.generation_stream)
    mx.reset_peak_memory()
    steps = generate.generate_step(
        prompt, model, max_tokens=GENERATED, prompt_cache=caches, prefill_step_size=run.step
    )
    for _ in steps:
        pass
    peak, parameters = mx.get_peak_memory(), model.parameters()
    h2o_caches = [cache for cache in caches if isinstance(cache, h2o_py.H2OKVCache)]
    ledger = sum(
        array.nbytes for cache in h2o_caches if cache.ledger for array in cache.ledger.arrays
    )
    weights = sum(array.nbytes for array in dict(mlx_utils.tree_flatten(parameters)).values())
    rows = sum(cache.nbytes for cache in h2o_caches) - ledger
    return Held(peak, rows, ledger, weights, largest_footprint())


def main(name: str, runs: str) -> None:
    """Measure runs of a model, given as JSON, and print their values."""
    warnings.simplefilter("ignore")
    h2o_py.install_routing()
    model, _ = models.load(name)
    mx.eval(model.parameters())
    results = [measure(model, HeldRun(*values)) for values in json.loads(runs)]
    sys.stdout.write(json.dumps(results))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
