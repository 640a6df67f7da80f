"""How the hub answers one request, and which bytes arrive."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from tests.hub.faults import (
    Before,
    Drop,
    Effect,
    Hold,
    IgnoreRange,
    Instead,
    Other,
    SayLength,
    ShiftRange,
    Status,
    Truncate,
)
from tests.hub.repository import Content, Repository
from tests.hub.server import HubServer, Listener, Request

RANGE = re.compile(r"bytes=(\d+)-(\d*)")


@dataclass(frozen=True)
class Sending:
    """`length` bytes of a content from `start`; the answer says that they are `said`."""

    content: Content
    status: int
    start: int
    length: int
    said: int
    headers: dict[str, str] = field(default_factory=dict)
    ends_connection: bool = False

    def part(self, begin: int, end: int) -> Sending:
        """Return the bytes from `begin` to `end` of what is sent."""
        end = min(end, self.length)
        begin = min(begin, end)
        return replace(self, start=self.start + begin, length=end - begin)


def prepare(content: Content, range_header: str, effects: Iterable[Effect]) -> Sending:
    """Decide what is sent for a Range header (or none), faults applied in order."""
    sending = whole(content) if not range_header else ranged(content, range_header)
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
            sending = replace(sending, length=length, said=length)
        elif isinstance(effect, SayLength):
            sending = replace(sending, said=effect.length, ends_connection=True)
        elif isinstance(effect, Drop):
            length = min(effect.after, sending.length)
            sending = replace(sending, length=length, ends_connection=True)
    return sending


def whole(content: Content) -> Sending:
    """Send all of a file."""
    return Sending(content, 200, 0, content.real_size, content.real_size)


def ranged(content: Content, range_header: str) -> Sending:
    """Send the range of a header such as `bytes=100-199` or `bytes=100-`."""
    size = content.real_size
    match = RANGE.fullmatch(range_header)
    if match is None:
        return whole(content)
    start, last = int(match[1]), match[2]
    end = min(int(last), size - 1) if last else size - 1
    if start >= size or end < start:
        return Sending(content, 416, 0, 0, 0, {"Content-Range": f"bytes */{size}"})
    length = end - start + 1
    headers = {"Content-Range": f"bytes {start}-{end}/{size}"}
    return Sending(content, 206, start, length, length, headers)


def send(connection: socket.socket, sending: Sending) -> None:
    """Send the bytes, those of a file on disk without copying them through Python."""
    if sending.length <= 0:
        return
    with sending.content.open() as file:
        connection.sendfile(file, sending.start, sending.length)


MISSING = (404, "RepoNotFound", "Repository not found")
HIDDEN = (401, "RepoNotFound", "Invalid username or password.")
GATED = "Access to model {id} is restricted. You must have access to it and be authenticated."


@dataclass(eq=False)
class Refused(Exception):  # noqa: N818 - an answer, not a failure
    """The request gets a status and no content."""

    code: int
    error: str = ""
    message: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


class Handler(BaseHTTPRequestHandler):
    """Answers as huggingface.co does."""

    protocol_version = "HTTP/1.1"
    server: Listener
    effects: list[Effect]

    @property
    def hub(self) -> HubServer:
        return self.server.hub

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def answer(self) -> None:
        """Note the request, let its faults happen, and route it."""
        parts = urlsplit(self.path)
        path = unquote(parts.path)
        authorization = self.headers.get("Authorization", "")
        request = Request(self.command, path, self.headers.get("Range", ""), authorization)
        self.effects = self.hub.arrived(request)
        for effect in self.effects:
            if isinstance(effect, Before):
                effect.action()
        try:
            for effect in self.effects:
                if isinstance(effect, Status):
                    self.refuse(Refused(effect.code, effect.error, headers=effect.headers))
                    return
            self.route(path, parts.query)
        except Refused as refused:
            self.refuse(refused)
        except ConnectionError:
            self.close_connection = True

    def route(self, path: str, query: str) -> None:
        """Answer by the path."""
        parts = path.strip("/").split("/")
        if parts == ["api", "models"]:
            self.reply_json([{"id": name} for name in self.hub.repositories])
        elif parts[:2] == ["api", "models"]:
            repository = self.repository("/".join(parts[2:4]))
            self.api(repository, parts[4:], query)
        elif parts[0] == "cdn":
            repository = self.hub.repositories["/".join(parts[1:3])]
            content = repository.commits[parts[3]]["/".join(parts[4:])]
            self.content(content, {"ETag": f'"{content.sha256}"'})
        elif parts[2:3] == ["resolve"]:
            repository = self.repository("/".join(parts[:2]))
            self.resolve(repository, parts[3], "/".join(parts[4:]))
        else:
            raise Refused(404, "", "Not Found")

    def repository(self, model_id: str) -> Repository:
        """Return the repository that may be read with the request's token."""
        repository = self.hub.repositories.get(model_id)
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if repository is not None and repository.moved_to:
            address = self.path.replace(quote(model_id), quote(repository.moved_to), 1)
            raise Refused(307, headers={"Location": address})
        if repository is None or (repository.private and token != repository.token):
            raise Refused(*(MISSING if token else HIDDEN))
        return repository

    def api(self, repository: Repository, rest: list[str], query: str) -> None:
        """Answer a question about a repository."""
        kind = rest[0] if rest else "revision"
        commit = self.commit(repository, rest[1] if len(rest) > 1 else "main")
        if kind == "revision":
            self.reply_json(described(repository, commit, blobs="blobs" in query))
        elif kind == "tree":
            files = repository.commits[commit].items()
            self.reply_json([file_entry(path, content) for path, content in files])
        else:
            raise Refused(404, "", "Not Found")

    def commit(self, repository: Repository, revision: str) -> str:
        """Return the commit of a revision, or refuse as the hub does."""
        commit = repository.resolve(revision)
        if not commit:
            raise Refused(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return commit

    def resolve(self, repository: Repository, revision: str, path: str) -> None:
        """Answer for a file's metadata or bytes."""
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if repository.gated and token != repository.token:
            raise Refused(401, "GatedRepo", GATED.format(id=repository.id))
        commit = self.commit(repository, revision)
        content = repository.commits[commit].get(path)
        if content is None:
            raise Refused(404, "EntryNotFound", "Entry not found")
        headers = {"X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
        if not content.lfs:
            self.content(content, {**headers, "ETag": f'"{content.blob_id}"'})
            return
        address = quote(f"/{repository.id}/{commit}/{path}")
        headers |= {
            "Location": f"{self.hub.cdn}{address}",
            "X-Linked-Etag": f'"{content.sha256}"',
            "X-Linked-Size": str(content.size),
        }
        self.reply(302, b"Found. Redirecting", headers)

    def content(self, content: Content, headers: Mapping[str, str]) -> None:
        """Send a file, or the range that was asked for, as its faults want it."""
        range_header = self.headers.get("Range", "") if self.command == "GET" else ""
        sending = prepare(content, range_header, self.effects)
        self.send_response(sending.status)
        said = {"Content-Length": str(sending.said)}
        for name, value in {**headers, **said, **sending.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.body(sending)

    def body(self, sending: Sending) -> None:
        """Send the bytes; close the connection when they are not what was said."""
        hold = next((effect for effect in self.effects if isinstance(effect, Hold)), None)
        self.wfile.flush()
        if hold is not None and hold.after < sending.length:
            send(self.connection, sending.part(0, hold.after))
            self.hub.holding.set()
            self.hub.go_on.wait(120)
            sending = sending.part(hold.after, sending.length)
        send(self.connection, sending)
        if sending.ends_connection:
            self.close_connection = True
            with suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)

    def refuse(self, refusal: Refused) -> None:
        """Answer with an error."""
        headers = {
            **({"X-Error-Code": refusal.error} if refusal.error else {}),
            **({"X-Error-Message": refusal.message} if refusal.message else {}),
            **refusal.headers,
        }
        body = json.dumps({"error": refusal.message or str(refusal.code)}).encode()
        self.reply(refusal.code, body, {"Content-Type": "application/json", **headers})

    def reply_json(self, document: Any) -> None:
        """Answer with a JSON document; it can be dropped, cut or held like a file."""
        body = Content(json.dumps(document).encode())
        self.content(body, {"Content-Type": "application/json"})

    def reply(self, code: int, body: bytes, headers: Mapping[str, str]) -> None:
        """Answer with a short body that nothing happens to."""
        self.send_response(code)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""


def described(repository: Repository, commit: str, *, blobs: bool) -> dict[str, Any]:
    """Describe a repository at a commit, as /api/models does."""
    siblings = []
    for path, content in repository.commits[commit].items():
        sibling: dict[str, Any] = {"rfilename": path}
        if blobs:
            sibling |= {"size": content.size, "blobId": content.blob_id}
            sibling |= in_lfs(content, "sha256")
        siblings.append(sibling)
    return {"id": repository.id, "sha": commit, "siblings": siblings}


def file_entry(path: str, content: Content) -> dict[str, Any]:
    """Describe a file as /tree does."""
    entry = {"type": "file", "oid": content.blob_id, "size": content.size, "path": path}
    return entry | in_lfs(content, "oid")


def in_lfs(content: Content, digest_key: str) -> dict[str, Any]:
    """Describe what LFS keeps of a file; nothing for a file that git itself keeps."""
    if not content.lfs:
        return {}
    size, pointer_size = content.size, len(content.pointer)
    return {"lfs": {digest_key: content.sha256, "size": size, "pointerSize": pointer_size}}
