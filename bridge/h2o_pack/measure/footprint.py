"""The most memory that this process took so far, as the system counts it."""

from __future__ import annotations

import ctypes
import os
import platform
import resource

LARGEST = 16 + 28 * 8
"""Where struct rusage_info_v4 of <sys/resource.h> has ri_lifetime_max_phys_footprint."""
VERSION = 4
SIZE = 512  # bytes; more than the structure has


def largest_footprint() -> int:
    """Return bytes: on a Mac the footprint by which the system ends apps, elsewhere the RSS."""
    if platform.system() != "Darwin":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    usage = (ctypes.c_uint8 * SIZE)()
    library = ctypes.CDLL("/usr/lib/libSystem.dylib", use_errno=True)
    if library.proc_pid_rusage(os.getpid(), VERSION, ctypes.byref(usage)):
        raise OSError(ctypes.get_errno(), "proc_pid_rusage")
    return int.from_bytes(bytes(usage)[LARGEST : LARGEST + 8], "little")
