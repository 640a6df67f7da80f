"""Sizes in bytes as people read them."""

from __future__ import annotations


def megabytes(size: float) -> str:
    """Bytes in MB, with a comma at thousands."""
    return f"{size / 1e6:,.1f}"


def gigabytes(size: float | None) -> str:
    """Bytes in GB, a dash where they are not known."""
    return "-" if size is None else f"{size / 1e9:.2f}"


def disk_size(size: int) -> str:
    """Write bytes in the unit that disks are sold in."""
    return f"{size / 1e9:.2f} GB" if size >= 10**8 else f"{size / 1e6:.1f} MB"
