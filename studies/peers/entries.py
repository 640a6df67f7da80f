"""Names of what is compared; imports nothing that is slow or missing in CI."""

from __future__ import annotations

from dataclasses import dataclass

FULL = "full"
KVPRESS = "kvpress"
BY_TOKEN, ONCE = "token by token", "once"
"""Our protocols: a short prefill and then single tokens, evicting all along, in at most so
many rows; or the context in one chunk, one eviction, and rows that grow again after that."""
PREFILL = 32
"""Tokens read at once when the rest is read token by token."""
ANSWER_TOKENS = 6
"""A space, four digits and one more."""


@dataclass(frozen=True)
class Entry:
    """A contender: `side` is kvpress or one of our protocols; 0 rows for all that come."""

    side: str
    name: str
    rows: int
