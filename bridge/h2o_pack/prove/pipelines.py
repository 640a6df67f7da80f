"""What Metal says of the pipelines that ran: threads that they allow, and fast math."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from h2o_pack.prove.expected import Expected
from h2o_pack.prove.ids import DISPATCHES, PIPELINES
from h2o_pack.prove.notes import Notes
from h2o_py._compiled import ext

NO_METAL = "this build has no Metal"
UNSEEN = "Metal tells a process no counts; Xcode's GPU capture and Instruments do"
THREADS = "maxTotalThreadsPerThreadgroup, beside the threads that were dispatched"
NAN = "a kernel of mx.fast.metal_kernel that compares NaN with itself"
PER_STEP = 3  # write, attention, ledger; counted by tests/metal/test_counts.py


def prove_pipelines(notes: Notes) -> None:
    """Note the limit of each pipeline that wrote scores, and how MLX compiles kernels."""
    if not mx.metal.is_available():
        notes.skip(f"{PIPELINES}/threads", "threads", THREADS, NO_METAL)
        notes.skip(f"{PIPELINES}/fast math", "on", NAN, NO_METAL)
    else:
        found = ext.scoring_pipelines()
        if not found:
            none = "no pipeline that writes scores was dispatched"
            notes.skip(f"{PIPELINES}/threads", "threads", THREADS, none)
        for name, (allowed, used) in sorted(found.items()):
            wanted = Expected("at least", used, "host")
            notes.note(f"{PIPELINES}/{name}", allowed, "threads", THREADS, expected=wanted)
        notes.note(f"{PIPELINES}/fast math", float(compiles_with_fast_math()), "on", NAN)


def prove_dispatches(notes: Notes) -> None:
    """Say that what the system counts cannot be read."""
    why = UNSEEN if mx.metal.is_available() else NO_METAL
    how = f"{PER_STEP} dispatches of a layer's step are counted in tests on a CPU"
    notes.skip(f"{DISPATCHES}/step of a layer", DISPATCHES, how, why)
    notes.skip(f"{DISPATCHES}/bytes", "bytes", "bytes that a step reads and writes", why)


def compiles_with_fast_math() -> bool:
    """Tell whether NaN equals itself in a kernel that MLX compiles here."""
    kernel: Any = mx.fast.metal_kernel(
        name="h2o_nan_equals_itself",
        input_names=["numbers"],
        output_names=["equal"],
        source="equal[0] = numbers[0] == numbers[0] ? 1.0f : 0.0f;",
    )
    (equal,) = kernel(
        inputs=[mx.array([float("nan")])],
        grid=(1, 1, 1),
        threadgroup=(1, 1, 1),
        output_shapes=[(1,)],
        output_dtypes=[mx.float32],
    )
    return bool(equal.item() == 1)
