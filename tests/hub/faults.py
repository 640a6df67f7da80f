"""What goes wrong between the hub and its client, as data."""

import fnmatch
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.hub.repository import Content


@dataclass(frozen=True)
class Drop:
    """Close the connection after `after` bytes of the answer's body."""

    after: int


@dataclass(frozen=True)
class Truncate:
    """Send only `to` bytes of what was asked for and call that all (Content-Length agrees)."""

    to: int


@dataclass(frozen=True)
class SayLength:
    """Say another Content-Length than what is sent, then close the connection."""

    length: int


@dataclass(frozen=True)
class Status:
    """Answer with a status instead, such as 429 with {"Retry-After": "0"}."""

    code: int
    headers: Mapping[str, str] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True)
class Other:
    """Send another file's bytes under this one's headers."""

    content: Content


@dataclass(frozen=True)
class Instead:
    """Send another content, whole and with its own length, or only these headers."""

    content: Content | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class IgnoreRange:
    """Send the whole file with 200 though a range was asked for."""


@dataclass(frozen=True)
class ShiftRange:
    """Send a range that begins `by` bytes further than asked, and say so."""

    by: int


@dataclass(frozen=True)
class Before:
    """Do something on the server, such as a commit, then answer as usual."""

    action: Callable[[], object]


@dataclass(frozen=True)
class Hold:
    """Send `after` bytes of a longer body, then nothing until the server is told to go on."""

    after: int = 0


Effect = (
    Drop | Truncate | SayLength | Status | Other | Instead | IgnoreRange | ShiftRange
    | Before | Hold
)  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """An effect on some of the requests for a path.

    path: a pattern of the request's path, `*` for anything: "*/model.safetensors" is its
    metadata and its bytes, "/cdn/*/model.safetensors" only the bytes of a file in LFS.
    numbers: which of the requests that match (from 0), all when None.
    """

    path: str
    effect: Effect
    method: str = "*"
    numbers: range | None = None

    def hits(self, method: str, path: str) -> bool:
        """Whether a request is of the kind that this fault counts."""
        return fnmatch.fnmatchcase(method, self.method) and fnmatch.fnmatchcase(path, self.path)
