"""Sizes in bytes as people read them."""

from __future__ import annotations


def megabytes(size: float) -> str:
    """Bytes in MB, with a comma at thousands."""
    return f"{size / 1e6:,.1f}"


def gigabytes(size: float | None) -> str:
    """Bytes in GB, a dash where they are not known."""
    return "-" if size is None else f"{size / 1e9:.2f}"
