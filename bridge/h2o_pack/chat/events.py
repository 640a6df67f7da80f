"""What happens in a conversation, as `h2o-pack chat --json` prints it, one object on a line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from h2o_pack.results import Count, ErrorEntry, Result, doc


@dataclass(frozen=True, kw_only=True)
class TextEvent(Result):
    """Text that follows the reply's text so far."""

    event: Literal["text"] = "text"
    text: str


@dataclass(frozen=True, kw_only=True)
class ThoughtEvent(Result):
    """Text that follows the model's thoughts so far."""

    event: Literal["thought"] = "thought"
    text: str


Stop = Literal["end", "length", "stopped"]


@dataclass(frozen=True, kw_only=True)
class UsageEvent(Result):
    """The end of a reply, with its figures."""

    event: Literal["usage"] = "usage"
    stop: Annotated[
        Stop,
        doc(
            "Why the reply ended: the model ended it, it has --max-tokens tokens, or Ctrl-C "
            "stopped it."
        ),
    ]
    read_tokens: Annotated[Count, doc("Tokens that were read for this reply.")]
    cached_tokens: Annotated[Count, doc("Tokens that the caches had read before.")]
    generated_tokens: Annotated[Count, doc("Tokens of the reply, thoughts included.")]
    thought_tokens: Annotated[Count, doc("Tokens of thoughts.")]
    tokens_per_second: Annotated[
        float, doc("Generated tokens per second, without the first one; 0 for fewer than two.")
    ]
    seconds: Annotated[float, doc("Time from the message to the end of the reply.")]
    tokens: Annotated[Count, doc("Tokens of the conversation so far.")]
    rows: Annotated[
        Count, doc("Most tokens whose keys and values a layer that sees all of them keeps.")
    ]
    cache_bytes: Annotated[Count, doc("Bytes of all caches, without an archive.")]
    archive_reads: Annotated[
        Count | None,
        doc("Archived rows of all heads and layers that were read; null without recall."),
    ] = None
    archive_bytes: Annotated[
        Count | None, doc("Bytes of the archive; null without recall.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class NoteEvent(Result):
    """What a command did, or a remark on the model or its cache."""

    event: Literal["note"] = "note"
    text: str


@dataclass(frozen=True, kw_only=True)
class ErrorEvent(Result):
    """Errors that end the program; stderr shows the same text."""

    event: Literal["error"] = "error"
    errors: Annotated[
        tuple[ErrorEntry, ...], doc("All errors; the first error gives the exit code.")
    ]


Event = TextEvent | ThoughtEvent | UsageEvent | NoteEvent | ErrorEvent
