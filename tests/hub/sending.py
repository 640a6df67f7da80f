"""The bytes of an answer: which part of a file, what is said of it, how much arrives."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from tests.hub.contents import Content
from tests.hub.faults import (
    Drop,
    Effect,
    IgnoreRange,
    Instead,
    Other,
    SayLength,
    ShiftRange,
    Truncate,
)

RANGE = re.compile(r"bytes=(\d*)-(\d*)")


@dataclass(frozen=True)
class Sending:
    """`length` bytes of a content from `start`; status and headers say what they are."""

    content: Content
    status: int
    start: int
    length: int
    headers: dict[str, str] = field(default_factory=dict)
    ends_connection: bool = False

    def part(self, begin: int, end: int) -> Sending:
        """Return the bytes from `begin` to `end` of what is sent."""
        end = min(end, self.length)
        begin = min(begin, end)
        return replace(self, start=self.start + begin, length=end - begin)


def prepare(content: Content, wanted: str, effects: Iterable[Effect]) -> Sending:
    """Decide what is sent for a Range header (or none), faults applied in order."""
    sending = whole(content) if not wanted else ranged(content, wanted)
    for effect in effects:
        if isinstance(effect, IgnoreRange):
            sending = whole(content)
        elif isinstance(effect, Instead):
            sending = whole(effect.content) if effect.content is not None else sending
            sending = replace(sending, headers={**sending.headers, **effect.headers})
        elif isinstance(effect, Other):
            sending = replace(sending, content=effect.content)
        elif isinstance(effect, ShiftRange) and sending.status == 206:
            sending = ranged(content, f"bytes={sending.start + effect.by}-")
        elif isinstance(effect, Truncate):
            length = min(effect.to, sending.length)
            said = {**sending.headers, "Content-Length": str(length)}
            sending = replace(sending, length=length, headers=said)
        elif isinstance(effect, SayLength):
            said = {**sending.headers, "Content-Length": str(effect.length)}
            sending = replace(sending, headers=said, ends_connection=True)
        elif isinstance(effect, Drop):
            length = min(effect.after, sending.length)
            sending = replace(sending, length=length, ends_connection=True)
    return sending


def whole(content: Content) -> Sending:
    """Send all of a file."""
    return Sending(
        content, 200, 0, content.real_size, {"Content-Length": str(content.real_size)}
    )


def ranged(content: Content, wanted: str) -> Sending:
    """Send the range of a header such as `bytes=100-199`, `bytes=100-` or `bytes=-8`."""
    size = content.real_size
    match = RANGE.fullmatch(wanted)
    if match is None or not any(match.groups()):
        return whole(content)
    first, last = match.groups()
    start = int(first) if first else max(size - int(last), 0)
    end = min(int(last), size - 1) if first and last else size - 1
    if start >= size or end < start:
        refused = {"Content-Range": f"bytes */{size}", "Content-Length": "0"}
        return Sending(content, 416, 0, 0, refused)
    said = {
        "Content-Range": f"bytes {start}-{end}/{size}",
        "Content-Length": str(end - start + 1),
    }
    return Sending(content, 206, start, end - start + 1, said)


def send(connection: socket.socket, sending: Sending) -> None:
    """Send the bytes without copying them through Python."""
    if sending.length <= 0:
        return
    with sending.content.open() as file:
        connection.sendfile(file, sending.start, sending.length)
