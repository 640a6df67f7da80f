"""TOML on every Python that the project runs on."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any


def loads(text: str) -> dict[str, Any]:
    """Parse a document.

    Raises:
        ValueError: it is not TOML.

    """
    parser: Any = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    document: dict[str, Any] = parser.loads(text)
    return document
