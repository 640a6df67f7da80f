"""What a generated file holds: text, which is written as UTF-8, or bytes."""

from __future__ import annotations

Content = str | bytes


def as_bytes(content: Content) -> bytes:
    """Return the bytes of a file, as they are written on every system."""
    return content.encode() if isinstance(content, str) else content
