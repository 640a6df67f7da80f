"""Measures memory: MLX's arrays, and the whole process."""

from __future__ import annotations

import ctypes
import gc
import os
import platform
import resource

import mlx.core as mx

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
