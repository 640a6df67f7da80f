"""Asks the Hugging Face hub for the metadata of a model, never for weights.

All requests use huggingface_hub, so HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE, proxies and saved
logins apply. Every answer in this process is limited in bytes and time. The library
uses headers of an answer as parts of paths (an ETag names a file in its cache), so a header
that is not a hash or a commit id is removed before the library reads it.
"""

from __future__ import annotations

import errno
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

import httpx2
from huggingface_hub import (
    HfApi,
    constants,
    get_hf_file_metadata,
    hf_hub_url,
    set_client_factory,
)
from huggingface_hub.errors import (
    DisabledRepoError,
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.hf_api import RepoSibling
from huggingface_hub.utils import (  # type: ignore[attr-defined]
    build_hf_headers,
    get_session,
    hf_raise_for_status,
)
from huggingface_hub.utils._http import default_client_factory

from h2o_pack.errors import (
    ExitCode,
    UserError,
    model_error,
    nearest_product,
    network_error,
    output_error,
)
from h2o_pack.facts import known_models
from h2o_pack.files.paths import DISK_FULL, GIT_ID, free_space_or

ANSWER_BYTES = 64 << 20
"""The most bytes of an answer; the listing of a hundred thousand files has about 30 MB."""
PATIENCE = 30.0  # seconds
SLOWEST = 1000  # bytes per second, on average over PATIENCE
HASH = re.compile(r'(?:W/)?"?(?:[0-9a-f]{40}|[0-9a-f]{64})"?')
SECONDS = re.compile(r"[0-9]{1,6}")
PATTERNS = {
    "ETag": HASH,
    "X-Linked-Etag": HASH,
    "X-Repo-Commit": GIT_ID,
    "Retry-After": SECONDS,
}

_most_bytes: ContextVar[int] = ContextVar("most bytes of an answer", default=ANSWER_BYTES)


@contextmanager
def at_most(size: int) -> Iterator[None]:
    """Refuse answers of more than `size` bytes; a page that explains an error may be longer."""
    token = _most_bytes.set(max(size, 1 << 20))
    try:
        yield
    finally:
        _most_bytes.reset(token)


class BoundedStream(httpx2.SyncByteStream):
    """The bytes of an answer; UserError if they are too many or arrive too slowly."""

    def __init__(self, stream: httpx2.SyncByteStream, most: int, host: str) -> None:
        """Wrap a stream; `most` bytes are allowed, and errors name the sender."""
        self.stream, self.most, self.host = stream, most, host

    def __iter__(self) -> Iterator[bytes]:
        """Yield the bytes as they arrive."""
        size = 0
        since, recent = time.monotonic(), 0
        for piece in self.stream:
            size, recent = size + len(piece), recent + len(piece)
            if size > self.most:
                raise invalid_answer(
                    self.host, f"sends more than the {self.most:,} bytes expected"
                )
            seconds = time.monotonic() - since
            if seconds > PATIENCE:
                if recent < SLOWEST * seconds:
                    rate = f"{recent / seconds:.0f} bytes per second"
                    raise invalid_answer(self.host, f"sends only {rate}")
                since, recent = time.monotonic(), 0
            yield piece

    def close(self) -> None:
        """Close the connection."""
        self.stream.close()


def ask_for_plain_bytes(request: httpx2.Request) -> None:
    """Ask for bytes that are not compressed, so that their number is known."""
    request.headers["Accept-Encoding"] = "identity"


def check_answer(response: httpx2.Response) -> None:
    """Remove headers with invalid values, and limit the body."""
    for name, pattern in PATTERNS.items():
        if name in response.headers and not pattern.fullmatch(response.headers[name]):
            del response.headers[name]
    # Without this, another client that has no such limits would download from Xet's storage.
    response.headers.pop("X-Xet-Hash", None)
    host = response.request.url.host
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise invalid_answer(
            host, "sends compressed bytes, although h2o-pack did not ask for them"
        )
    if isinstance(response.stream, httpx2.SyncByteStream):
        response.stream = BoundedStream(response.stream, _most_bytes.get(), host)


def invalid_answer(host: str, what: str) -> UserError:
    """Make the error for an invalid answer."""
    return network_error(
        f"{host} {what}",
        "Check HF_ENDPOINT and your proxies, then run the command again.",
    )


def guarded_client() -> httpx2.Client:
    """Make the library's own client with the checks of this module."""
    client = default_client_factory()
    hooks = client.event_hooks
    client.event_hooks = {
        "request": [*hooks["request"], ask_for_plain_bytes],
        "response": [*hooks["response"], check_answer],
    }
    return client


set_client_factory(guarded_client)  # for all of huggingface_hub in this process
RESUME = "Run the command again; it keeps what was downloaded."
NOT_WRITABLE = (*DISK_FULL, errno.EFBIG)
AGAIN = "Wait a little, then run the command again; it keeps what was downloaded."
CHECK_NETWORK = (
    "Check the network, HTTPS_PROXY and SSL_CERT_FILE, or set HF_ENDPOINT to a mirror."
)
UNSET = "Unset HF_HUB_OFFLINE, or give a local folder as --model."
UNAUTHORIZED, FORBIDDEN, TOO_MANY = 401, 403, 429
REFUSALS: tuple[tuple[type[Exception], str, str], ...] = (
    (
        GatedRepoError,
        "requires you to accept its license",
        "Accept the license at {page}, then run `hf auth login`, or set HF_TOKEN.",
    ),
    (DisabledRepoError, "was disabled on the hub", "Choose another model."),
    (
        RepositoryNotFoundError,
        "is not on the hub, or is private",
        "{nearest}Check the spelling, or run `hf auth login` if the model is private.",
    ),
    (
        RevisionNotFoundError,
        "has no revision {revision!r}",
        "Give a branch, a tag or a complete commit id from the model's page.",
    ),
    (
        EntryNotFoundError,
        "lacks a file that inference needs, such as config.json",
        "Choose a model in MLX's format, such as a model of mlx-community.",
    ),
    (HFValidationError, "is not the id of a model", "Give OWNER/NAME as on the model's page."),
)
"""The library's errors for a model that cannot be had: what is wrong, and what to do.

The first that fits an error explains it: a GatedRepoError is also a RepositoryNotFoundError.
"""


class UnreachableError(UserError):
    """The hub cannot be reached."""


class WrongBytesError(UserError):
    """An answer of the hub contains something other than the requested bytes or list."""


@contextmanager
def hub_errors(hub_id: str, revision: str) -> Iterator[None]:
    """Turn errors of huggingface_hub, the network and the disk into UserErrors."""
    try:
        yield
    except (EntryNotFoundError, HFValidationError, httpx2.HTTPError, OSError) as error:
        # If a request fails, the library reports only that its cache lacks the file.
        is_request = isinstance(error, LocalEntryNotFoundError)
        cause = error.__cause__ if is_request and error.__cause__ else error
        raise explained(cause, hub_id, revision) from error


def explained(error: BaseException, hub_id: str, revision: str) -> UserError:
    """Make the UserError for an error that `hub_errors` caught."""
    names = [model.hub for model in known_models().values() if model.hub]
    parts = {
        "page": f"{constants.ENDPOINT}/{hub_id}",
        "nearest": nearest_product(hub_id, names),
        "revision": revision,
    }
    for kind, what, remedy in REFUSALS:
        if isinstance(error, kind):
            return model_error(f"{hub_id} {what.format(**parts)}", remedy.format(**parts))
    if isinstance(error, HfHubHTTPError):
        return status_error(hub_id, error.response.status_code)
    if isinstance(error, OfflineModeIsEnabled):
        return unreachable(hub_id, "HF_HUB_OFFLINE is set", UNSET)
    if isinstance(error, (httpx2.HTTPError, ConnectionError, TimeoutError)):
        return unreachable(hub_id)
    if isinstance(error, OSError) and (error.filename or error.errno in NOT_WRITABLE):
        return output_error(
            f"the hub's cache cannot be written: {error.strerror}",
            free_space_or(f"Set HF_HUB_CACHE to another folder. {RESUME}", error),
            where=str(error.filename) if error.filename else None,
        )
    lines = str(error).splitlines()
    return network_error(
        f"{hub_id} cannot be downloaded: {lines[0] if lines else repr(error)}",
        f"Check the network. {RESUME}",
    )


def status_error(hub_id: str, status: int) -> UserError:
    """Explain an HTTP status that is not one of the hub's own refusals."""
    if status in (UNAUTHORIZED, FORBIDDEN):
        return model_error(
            f"{hub_id} cannot be read: the hub refuses access ({status})",
            "Run `hf auth login` with an account that has access to the model, or set "
            "HF_TOKEN.",
        )
    busy = status == TOO_MANY
    answer = f"refuses more requests for now ({status})" if busy else f"answers {status}"
    return network_error(f"{hub_id} cannot be read: the hub {answer}", AGAIN)


def wrong_bytes(hub_id: str, what: str) -> WrongBytesError:
    """Make the error for an answer that contains something other than the requested bytes."""
    return WrongBytesError(
        f"{hub_id} cannot be read: the hub {what}", remedy=AGAIN, code=ExitCode.NETWORK
    )


def unreachable(
    hub_id: str, why: str = "the hub cannot be reached", remedy: str = CHECK_NETWORK
) -> UnreachableError:
    """Make the error for a hub that cannot be reached."""
    return UnreachableError(
        f"{hub_id} cannot be downloaded: {why}, and the model is not in the hub's cache",
        remedy=remedy,
        code=ExitCode.NETWORK,
    )


RETRIES = 3
TIMEOUT = 10  # seconds without an answer, as in huggingface_hub
BUSY = (408, 429, 500, 502, 503, 504)
NOBODY = (httpx2.ConnectError, httpx2.ConnectTimeout)  # another try is useless
LONGEST_WAIT = 8  # seconds
PARTIAL = 206

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Repository:
    """A model repository on the hub at a revision."""

    id: str
    revision: str = "main"

    def commit(self) -> str:
        """Return the commit id of the revision, with one small request."""
        with hub_errors(self.id, self.revision):
            address = hf_hub_url(self.id, "config.json", revision=self.revision)
            metadata = with_retries(lambda: get_hf_file_metadata(address, timeout=TIMEOUT))
        commit = metadata.commit_hash or ""
        if not GIT_ID.fullmatch(commit):
            raise wrong_bytes(self.id, "sends no commit id for config.json")
        return commit

    def listing(self) -> tuple[RepoSibling, ...]:
        """List the files of the revision with sizes and hashes."""
        with hub_errors(self.id, self.revision):
            return with_retries(self._listing)

    def _listing(self) -> tuple[RepoSibling, ...]:
        try:
            info = HfApi().model_info(
                self.id, revision=self.revision, files_metadata=True, timeout=TIMEOUT
            )
        # The library raises these errors for JSON of an unexpected form.
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
            if isinstance(error, HFValidationError):
                raise
            raise wrong_bytes(self.id, "sent something other than a list of files") from error
        return tuple(info.siblings or ())

    def read(self, path: str, start: int, length: int) -> bytes:
        """Read exactly the bytes [start, start + length) of a file."""
        with hub_errors(self.id, self.revision):
            return with_retries(lambda: self._read(path, start, length))

    def _read(self, path: str, start: int, length: int) -> bytes:
        with get_session().stream(
            "GET",
            hf_hub_url(self.id, path, revision=self.revision),
            headers={**build_hf_headers(), "Range": f"bytes={start}-{start + length - 1}"},
            timeout=TIMEOUT,
        ) as response:
            hf_raise_for_status(response)
            skip = start
            if response.status_code == PARTIAL:
                content_range = response.headers.get("Content-Range", "")
                if not content_range.startswith(f"bytes {start}-"):
                    raise wrong_bytes(
                        self.id, f"sent other bytes of {path} than h2o-pack asked for"
                    )
                skip = 0
            data = bytearray()
            for piece in response.iter_bytes(1 << 16):
                data += piece
                # A server that ignores ranges sends the whole file.
                if len(data) >= skip + length:
                    break
        part = bytes(data[skip : skip + length])
        if len(part) < length:
            raise wrong_bytes(self.id, f"sent {len(part)} of {length} bytes of {path}")
        return part


def with_retries(ask: Callable[[], Answer]) -> Answer:
    """Ask again a few times if the hub is busy or the connection breaks."""
    for attempt in range(RETRIES):
        try:
            return ask()
        except Exception as error:
            wait = retry_delay(error, attempt)
            if wait is None:
                raise
            time.sleep(wait)
    return ask()


def retry_delay(error: Exception, attempt: int) -> float | None:
    """Return the seconds until the next try; None if another try is useless."""
    if isinstance(error, HfHubHTTPError) and error.response is not None:
        if error.response.status_code not in BUSY:
            return None
        delay = str(error.response.headers.get("Retry-After", ""))
        return min(int(delay), LONGEST_WAIT) if delay.isdecimal() else 2**attempt
    if isinstance(error, NOBODY):
        return None
    return 2**attempt if isinstance(error, (httpx2.HTTPError, WrongBytesError)) else None
