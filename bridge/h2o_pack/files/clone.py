"""Copies that share their blocks with the original until one of both changes.

Unlike a hard link such a copy is a file of its own. APFS, btrfs and XFS have them.
"""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

FICLONE = 0x40049409  # Linux


def clone(source: Path, target: Path) -> bool:
    """Make a file that shares the blocks of another; False where that cannot be."""
    if sys.platform == "darwin":
        return clone_on_apfs(source, target)
    try:
        from fcntl import ioctl  # not on Windows

        with source.open("rb") as original, target.open("xb") as made:
            ioctl(made, FICLONE, original.fileno())
    except FileExistsError:
        raise
    except (ImportError, OSError):
        with suppress(FileNotFoundError):
            target.unlink()
        return False
    return True


def clone_on_apfs(source: Path, target: Path) -> bool:
    """Call macOS's clonefile(2), which makes the whole file or nothing."""
    system = ctypes.CDLL(None)
    made: int = system.clonefile(os.fsencode(source), os.fsencode(target), ctypes.c_uint32(0))
    return made == 0


def can_clone(source_folder: Path, folder: Path) -> bool:
    """Whether files of one folder can be cloned into another, which is tried out there."""
    if source_folder.stat().st_dev != folder.stat().st_dev:
        return False
    with suppress(OSError), TemporaryDirectory(prefix=".h2o-clone-", dir=folder) as place:
        original = Path(place, "original")
        original.write_bytes(b"\0" * 4096)
        return clone(original, Path(place, "clone"))
    return False
