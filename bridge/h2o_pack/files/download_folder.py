"""Where h2o-pack keeps what it downloads."""

from __future__ import annotations

import os
import sys
from pathlib import Path

VARIABLE = "H2O_PACK_CACHE"
MIRROR = "H2O_PACK_MIRROR"  # what takes the place of https://github.com


def cache_folder() -> Path:
    """Return the folder for downloads: $H2O_PACK_CACHE, or the system's usual place."""
    own = os.environ.get(VARIABLE)
    if own:
        return Path(own).expanduser()
    given = os.environ.get("XDG_CACHE_HOME")
    if sys.platform == "darwin" and not given:
        return Path.home() / "Library/Caches/h2o-pack"
    return Path(given or Path.home() / ".cache") / "h2o-pack"
