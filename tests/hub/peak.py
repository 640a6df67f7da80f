"""The most memory that a process has used."""

import resource
import sys
from pathlib import Path


def peak() -> int:
    """Return the most bytes of this process that were in memory at once.

    Linux's getrusage also counts the process that this one was forked from, so the
    kernel's own mark of the address space is read there.
    """
    if sys.platform == "darwin":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for line in Path("/proc/self/status").read_text("ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    raise OSError("the kernel tells no VmHWM")
