"""Checks a reply against its schema, with a validator that knows nothing of the grammar."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match


@dataclass(frozen=True)
class Cost:
    """Tokens generated; seconds until the first one; seconds of processor time for all."""

    tokens: int
    first: float
    processor: float

    @property
    def per_token(self) -> float:
        """Milliseconds of processor time per token."""
        return 1000 * self.processor / self.tokens


@dataclass(frozen=True)
class Result:
    """One reply. fault: why it is no instance of its schema, "" if it is.

    room: the tokens that the schema's shortest instance may take, 0 where those of all replies
    were enough. plain: what as many tokens after the same prompt cost without a schema, None
    where that was not measured; evicted: tokens that each cache had evicted at last.
    """

    schema: dict[str, Any]
    text: str
    fault: str
    guided: Cost
    plain: Cost | None
    evicted: int
    room: int


def judged(schema: dict[str, Any], reply: dict[str, Any]) -> Result:
    """Return what came of a schema."""
    return Result(
        schema=schema,
        text=reply["text"],
        fault=reply.get("error") or fault_of(schema, reply["text"]),
        guided=Cost(**reply["guided"]),
        plain=Cost(**reply["plain"]) if reply.get("plain") else None,
        evicted=reply["evicted"],
        room=reply.get("room") or 0,
    )


def fault_of(schema: dict[str, Any], text: str) -> str:
    """Return why a text is no instance of a schema, or ""."""
    try:
        instance = json.loads(text, parse_constant=refuse)
    except ValueError as error:
        return f"not JSON: {error}"
    found = best_match(Draft202012Validator(schema).iter_errors(instance))
    return "" if found is None else str(found.message)


def refuse(word: str) -> None:
    """Refuse a number that JSON does not have."""
    raise ValueError(f"{word} is no number")
