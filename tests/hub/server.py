"""A loopback server that speaks the Hugging Face hub's protocol, and may fail as told.

What is asked for here: /api/models, /api/models/{id}[/revision/{rev}], /tree/{rev}, and HEAD
and GET of /{id}/resolve/{rev}/{path}, which for files in LFS redirect to another host, as the
hub does to its CDN. No answer has a header of Xet storage, so huggingface_hub takes the plain
HTTP path.
"""

import threading
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from typing import Any

from tests.hub.faults import Effect, Fault
from tests.hub.repository import Repository


@dataclass(frozen=True)
class Request:
    """One request as it came; `range` and `authorization` are its headers or nothing."""

    method: str
    path: str
    range: str = ""
    authorization: str = ""


@dataclass
class HubServer:
    """Serves repositories on 127.0.0.1 until it is closed.

    holding is set when a request waits because of a Hold; set `go_on` to release all.
    """

    repositories: dict[str, Repository] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    holding: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)
    client: Any = None  # the HubClient of the fixture

    def __post_init__(self) -> None:
        from tests.hub.answers import Handler

        self.lock = threading.Lock()
        self.counts: dict[int, int] = {}
        self.http = Listener(("127.0.0.1", 0), Handler)
        self.http.hub = self
        self.port = self.http.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        # Another host by name, so that the client takes it for a CDN: no token goes there.
        self.cdn = f"http://localhost:{self.port}/cdn"
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.01,))
        self.thread.start()

    def close(self) -> None:
        """Stop serving and end what is held."""
        self.go_on.set()
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()

    def add(self, model_id: str, files: Any = None, **attributes: Any) -> Repository:
        """Add a repository; `files` ({path: bytes, str or Content}) is its first commit."""
        repository = Repository(model_id, **attributes)
        if files is not None:
            repository.commit(files)
        self.repositories[model_id] = repository
        return repository

    def fail(self, path: str, effect: Effect, **when: Any) -> None:
        """Add a fault; see Fault for `method` and `numbers`."""
        self.faults.append(Fault(path, effect, **when))

    def arrived(self, request: Request) -> list[Effect]:
        """Note a request and return the effects on it."""
        with self.lock:
            self.requests.append(request)
            effects = []
            for index, fault in enumerate(self.faults):
                if not fault.hits(request.method, request.path):
                    continue
                number = self.counts.get(index, 0)
                self.counts[index] = number + 1
                if fault.numbers is None or number in fault.numbers:
                    effects.append(fault.effect)
            return effects

    def asked(self, method: str, ending: str) -> list[Request]:
        """Return the requests of a method whose path ends so."""
        with self.lock:
            return [r for r in self.requests if r.method == method and r.path.endswith(ending)]


class Listener(ThreadingHTTPServer):
    """A threading server that knows its hub; clients that vanish are not its errors."""

    hub: HubServer
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that were killed."""
        import sys

        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)
