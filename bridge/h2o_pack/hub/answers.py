"""Every answer of the hub: bounded in bytes and time, and without misleading headers.

`guard` makes all requests of huggingface_hub in this process go through these checks. The
library uses headers of an answer as parts of paths (an ETag names a file in its cache), so
that one that is not a hash or a commit id is removed before the library reads it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import httpx2
from huggingface_hub import set_client_factory
from huggingface_hub.utils._http import default_client_factory

from h2o_pack.errors import ExitCode, UserError

ANSWER_BYTES = 64 << 20
"""The listing of a repository with a hundred thousand files has about 30 MB."""
PATIENCE = 30.0  # seconds
SLOWEST = 1000  # bytes per second, on average over PATIENCE
HASH = re.compile(r'(?:W/)?"?(?:[0-9a-f]{40}|[0-9a-f]{64})"?')
COMMIT = re.compile(r"[0-9a-f]{40}")
SHA256 = re.compile(r"[0-9a-f]{64}")
SECONDS = re.compile(r"[0-9]{1,6}")
PATTERNS = {
    "ETag": HASH,
    "X-Linked-Etag": HASH,
    "X-Repo-Commit": COMMIT,
    "Retry-After": SECONDS,
}

_most_bytes: ContextVar[int] = ContextVar("most bytes of an answer", default=ANSWER_BYTES)


@contextmanager
def at_most(size: int) -> Iterator[None]:
    """Refuse answers of more than `size` bytes, or of a page that explains an error."""
    token = _most_bytes.set(max(size, 1 << 20))
    try:
        yield
    finally:
        _most_bytes.reset(token)


class BoundedStream(httpx2.SyncByteStream):
    """The bytes of an answer; UserError where they are too many or come too slowly."""

    def __init__(self, stream: httpx2.SyncByteStream, most: int, host: str) -> None:
        """Take the stream, the bytes that it may have, and who sends it."""
        self.stream, self.most, self.host = stream, most, host

    def __iter__(self) -> Iterator[bytes]:
        """Yield what arrives."""
        size = 0
        since, recent = time.monotonic(), 0
        for piece in self.stream:
            size, recent = size + len(piece), recent + len(piece)
            if size > self.most:
                raise refused(self.host, f"sends more than the {self.most:,} bytes expected")
            seconds = time.monotonic() - since
            if seconds > PATIENCE:
                if recent < SLOWEST * seconds:
                    raise refused(
                        self.host, f"sends only {recent / seconds:.0f} bytes a second"
                    )
                since, recent = time.monotonic(), 0
            yield piece

    def close(self) -> None:
        """Close the connection."""
        self.stream.close()


def ask_for_plain_bytes(request: httpx2.Request) -> None:
    """Ask for bytes that are not compressed, so that their number is known."""
    request.headers["Accept-Encoding"] = "identity"


def check_answer(response: httpx2.Response) -> None:
    """Remove headers that are not what they should be, and bound the body."""
    for name, pattern in PATTERNS.items():
        if name in response.headers and not pattern.fullmatch(response.headers[name]):
            del response.headers[name]
    # Bytes of Xet would come by another client, which nothing here bounds.
    response.headers.pop("X-Xet-Hash", None)
    host = response.request.url.host
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise refused(host, "sends compressed bytes, which were not asked for")
    if isinstance(response.stream, httpx2.SyncByteStream):
        response.stream = BoundedStream(response.stream, _most_bytes.get(), host)


def refused(host: str, what: str) -> UserError:
    """Make the error for an answer that is not taken."""
    return UserError(
        f"{host} {what}",
        remedy="Check HF_ENDPOINT and the proxies on the way, then run the command again.",
        code=ExitCode.NETWORK,
    )


def guarded_client() -> httpx2.Client:
    """Make the library's own client, with the checks."""
    client = default_client_factory()
    hooks = client.event_hooks
    client.event_hooks = {
        "request": [*hooks["request"], ask_for_plain_bytes],
        "response": [*hooks["response"], check_answer],
    }
    return client


def guard() -> None:
    """Check all answers that huggingface_hub gets in this process from now on."""
    set_client_factory(guarded_client)
