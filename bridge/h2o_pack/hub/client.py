"""Asks the Hugging Face hub for what describes a model: never for weights.

Everything goes through huggingface_hub, so HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE, proxies
and saved logins hold here too.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from huggingface_hub import HfApi, get_hf_file_metadata, hf_hub_url
from huggingface_hub.errors import HfHubHTTPError, HTTPError  # type: ignore[attr-defined]
from huggingface_hub.utils import (  # type: ignore[attr-defined]
    build_hf_headers,
    get_session,
    hf_raise_for_status,
)

from h2o_pack.hub.errors import WrongBytesError, explained, wrong_bytes

COMMIT = re.compile(r"[0-9a-f]{40}")
RETRIES = 3
TIMEOUT = 10  # seconds without an answer, as huggingface_hub has it
BUSY = (408, 429, 500, 502, 503, 504)
NOBODY = ("ConnectError", "ConnectTimeout")  # httpx's: nobody is there to ask again
LONGEST_WAIT = 8  # seconds
PARTIAL = 206

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Listed:
    """A file as the hub lists it; sha256 is "" for what git itself keeps."""

    path: Any
    size: int | None
    sha256: str


@dataclass(frozen=True)
class Repository:
    """A model repository on the hub at a revision."""

    id: str
    revision: str = "main"

    def commit(self) -> str:
        """Return the commit id that the revision stands for, by one small request."""
        with explained(self.id, self.revision):
            address = hf_hub_url(self.id, "config.json", revision=self.revision)
            found = with_retries(lambda: get_hf_file_metadata(address, timeout=TIMEOUT))
        commit = found.commit_hash or ""
        if not COMMIT.fullmatch(commit):
            raise wrong_bytes(self.id, "gives no commit id for config.json")
        return commit

    def listing(self) -> tuple[Listed, ...]:
        """List the files of the revision with sizes and hashes."""
        with explained(self.id, self.revision):
            info = with_retries(
                lambda: HfApi().model_info(
                    self.id, revision=self.revision, files_metadata=True, timeout=TIMEOUT
                )
            )
        return tuple(
            Listed(each.rfilename, each.size, each.lfs.sha256 if each.lfs else "")
            for each in info.siblings or ()
        )

    def read(self, path: str, start: int, length: int) -> bytes:
        """Read bytes [start, start + length) of a file, and no others."""
        with explained(self.id, self.revision):
            return with_retries(lambda: self._read(path, start, length))

    def _read(self, path: str, start: int, length: int) -> bytes:
        with self._stream(path, start, length) as response:
            skip = start
            if response.status_code == PARTIAL:
                said = response.headers.get("Content-Range", "")
                if not said.startswith(f"bytes {start}-"):
                    raise wrong_bytes(self.id, f"sent other bytes of {path} than asked for")
                skip = 0
            data = bytearray()
            for piece in response.iter_bytes(1 << 16):
                data += piece
                if len(data) >= skip + length:  # a server that ignores ranges sends it all
                    break
        found = bytes(data[skip : skip + length])
        if len(found) < length:
            raise wrong_bytes(self.id, f"sent {len(found)} of {length} bytes of {path}")
        return found

    @contextmanager
    def _stream(self, path: str, start: int, length: int) -> Iterator[Any]:
        asked = {"Range": f"bytes={start}-{start + length - 1}", "Accept-Encoding": "identity"}
        with get_session().stream(
            "GET",
            hf_hub_url(self.id, path, revision=self.revision),
            headers={**build_hf_headers(), **asked},
            timeout=TIMEOUT,
            follow_redirects=True,
        ) as response:
            if response.is_error:
                response.read()
                hf_raise_for_status(response)
            yield response


def with_retries(ask: Callable[[], Answer]) -> Answer:
    """Ask again when the hub is busy or the connection breaks, a few times."""
    for attempt in range(RETRIES):
        try:
            return ask()
        except Exception as error:  # noqa: PERF203 - what is final is raised again
            wait = retry_delay(error, attempt)
            if wait is None:
                raise
            time.sleep(wait)
    return ask()


def retry_delay(error: Exception, attempt: int) -> float | None:
    """Return the seconds after which to ask again, None where that would not help."""
    if isinstance(error, HfHubHTTPError) and error.response is not None:
        if error.response.status_code not in BUSY:
            return None
        said = str(error.response.headers.get("Retry-After", ""))
        return min(int(said), LONGEST_WAIT) if said.isdecimal() else 2**attempt
    if type(error).__name__ in NOBODY:
        return None
    return 2**attempt if isinstance(error, (HTTPError, WrongBytesError)) else None
