"""Writes sizes in bytes for people."""

from __future__ import annotations


def megabytes(size: float) -> str:
    """Write bytes in MB, with commas between thousands."""
    return f"{size / 1e6:,.1f}"


def gigabytes(size: float | None) -> str:
    """Write bytes in GB; "-" if they are unknown."""
    return "-" if size is None else f"{size / 1e9:.2f}"


def disk_size(size: int) -> str:
    """Write bytes in MB or GB of powers of 1,000, as disks are sold."""
    return f"{size / 1e9:.2f} GB" if size >= 10**8 else f"{size / 1e6:.1f} MB"
