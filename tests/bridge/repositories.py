"""Small git repositories of our own, and a loopback server that gives them."""

import os
import subprocess
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from h2o_pack.facts import FOLDER as FACTS
from h2o_pack.facts import pins, with_submodules
from h2o_pack.progress import ProgressReporter, silent
from h2o_pack.vendoring import fetch
from tests.bridge.trees import build_tree
from tests.processes import output_of

OWNER = "owner"
ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    **{f"GIT_{who}_NAME": "t" for who in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{who}_EMAIL": "t@example.org" for who in ("AUTHOR", "COMMITTER")},
}


def git(folder: Path, *arguments: str) -> str:
    """Run git as nobody in particular."""
    return output_of("git", "-C", folder, *arguments, env=ENVIRONMENT).strip()


def commit(
    folder: Path, files: Mapping[str, str], submodules: Mapping[str, str] | None = None
) -> str:
    """Make a repository, or another commit in it; return the commit's id."""
    build_tree(folder, dict(files))
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    for path, at in (submodules or {}).items():
        git(folder, "update-index", "--add", "--cacheinfo", f"160000,{at},{path}")
    git(folder, "commit", "--quiet", "--message", "x")
    return git(folder, "rev-parse", "HEAD")


@dataclass
class GitServer:
    """Serves a folder's repositories over HTTP and remembers what was asked for.

    A repository in `held` gets no answer until `release` is set; `asked` is set
    when somebody waits for one.
    """

    folder: Path
    requests: list[str] = field(default_factory=list)
    held: set[str] = field(default_factory=set)
    asked: threading.Event = field(default_factory=threading.Event)
    release: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), handler(self))
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.01,))
        self.thread.start()

    def close(self) -> None:
        """Stop serving; nobody listens at `url` afterwards."""
        self.release.set()
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()

    def fetched(self) -> list[str]:
        """Return the repositories that gave their objects, in order."""
        paths = [request for request in self.requests if request.startswith("POST fetch/")]
        return [path.split("/")[2] for path in paths]


def handler(server: GitServer) -> type[BaseHTTPRequestHandler]:
    """Make the class that answers one request with git's own CGI program."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer(b"")

        def do_POST(self) -> None:
            self.answer(self.rfile.read(int(self.headers["Content-Length"])))

        def answer(self, body: bytes) -> None:
            path, _, query = self.path.partition("?")
            what = "fetch" if b"command=fetch" in body else "ask"
            server.requests.append(f"{self.command} {what}{path}")
            if path.split("/")[2] in server.held:
                server.asked.set()
                server.release.wait(120)  # longer than a test waits
            variables = ENVIRONMENT | {
                "GIT_PROJECT_ROOT": str(server.folder),
                "GIT_HTTP_EXPORT_ALL": "1",
                "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
                "PATH_INFO": path,
                "QUERY_STRING": query,
                "REQUEST_METHOD": self.command,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "CONTENT_LENGTH": str(len(body)),
            }
            process = subprocess.run(
                ["git", "http-backend"],
                input=body,
                capture_output=True,
                check=True,
                env=variables,
            )
            head, _, content = process.stdout.partition(b"\r\n\r\n")
            lines = [line.partition(": ") for line in head.decode().splitlines()]
            headers = {name: value for name, _, value in lines}
            self.send_response(int(headers.pop("Status", "200").split()[0]))
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            with suppress(ConnectionError):  # a client that was killed
                self.end_headers()
                self.wfile.write(content)

        def log_message(self, *_arguments: object) -> None:
            """Say nothing."""

    return Handler


PIN = """
[[pin]]
name = "{name}"
version = "1.0"
commit = "{commit}"
source = "https://github.com/owner/{name}"
measured = true
"""
SUBMODULE = PIN + 'parent = "mlx-swift"\npath = "Source/mlx"\n'


@dataclass(frozen=True)
class Repositories:
    """A folder of repositories as a mirror has them, and facts that pin them."""

    mirror: Path
    facts: Path
    commits: dict[str, str]

    @property
    def url(self) -> str:
        return self.mirror.as_uri()

    def folder(self, name: str) -> Path:
        return self.mirror / OWNER / name

    def pin(self, **commits: str) -> None:
        """Write the facts, with other commits for some."""
        text = "".join(
            (SUBMODULE if name == "mlx" else PIN).format(name=name, commit=commit)
            for name, commit in {**self.commits, **commits}.items()
        )
        others = {path.name: path.read_text("utf-8") for path in FACTS.glob("*.toml")}
        build_tree(self.facts, {**others, "upstream.toml": text})
        pins.cache_clear()


FILES = {
    "mlx": {"array.h": "int array;\n"},
    "mlx-swift": {
        "Package.swift": "gpu\ncpu\n",
        "Source/all.h": '#include "fast.h"\n',
        "Source/kernel.h": "score;\n",
        "Source/deep/gpu/needed.h": "int needed;\n",
    },
    "mlx-swift-lm": {"Package.swift": 'dependency(url: "https://github.com/x")\n'},
}
NAMES = ("mlx-swift", "mlx-swift-lm")
PLACES = {"mlx": "mlx-swift/Source/mlx"}
ALL = {
    f"{PLACES.get(name, name)}/{path}": text
    for name, files in FILES.items()
    for path, text in files.items()
}


# What `vendor` takes of them.
COPIES = """
[[copy]]
package = "mlx-swift"
paths = ["Source"]

[[copy]]
package = "mlx-swift-lm"
paths = ["Package.swift"]
"""


def make_repositories(folder: Path) -> Repositories:
    """Make mlx-swift with its submodule mlx, and mlx-swift-lm."""
    mirror = folder / "mirror"
    commits: dict[str, str] = {}
    for name, files in FILES.items():
        inside = {"Source/mlx": commits["mlx"]} if name == "mlx-swift" else {}
        commits[name] = commit(mirror / OWNER / name, files, inside)
    repositories = Repositories(mirror, folder / "facts", commits)
    repositories.pin()
    return repositories


def fetched(
    cache: Path, mirror: str, say: ProgressReporter = silent
) -> AbstractContextManager[tuple[Path, dict[str, str]]]:
    """Check out the repositories and the submodule."""
    return fetch.checked_out(with_submodules(NAMES), fetch.Origin(cache, mirror), say)


def store(cache: Path, name: str) -> Path:
    """Return the file of the cache with a pin's objects."""
    return fetch.store_of(pins()[name], fetch.Origin(cache))
