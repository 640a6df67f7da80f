"""The download's sources, compiled as a program of their own, and a server on loopback."""

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from h2o_pack import assets
from h2o_pack.bundling import bundle, manifest
from h2o_pack.files.paths import MODEL_MANIFEST
from h2o_pack.files.write import write_files
from h2o_pack.progress import silent
from tests.bridge.bundling.sources import local
from tests.hub.server import HubServer
from tests.processes import output_of

PIECE = 1 << 16
KIT = ("ModelManifest", "ChatFacts", "H2OLoadingError", "ModelFolder", "MemoryPlan")


@dataclass(frozen=True)
class Ended:
    """How a run of the program ended: the folder of the model, or the error and its words.

    confirm: the bytes that the user must confirm before the download; 0 if there are none.
    """

    folder: Path | None
    error: str = ""
    words: str = ""
    confirm: int = 0


@dataclass
class Downloads:
    """Runs the program for one model, whose files a server has."""

    program: Path
    hub: HubServer
    place: Path
    files: dict[str, bytes] = field(default_factory=dict)

    def offer(
        self, files: dict[str, bytes], *, manifest_of: dict[str, bytes] | None = None
    ) -> None:
        """Put files on the server, and the manifest of these or of others into the app."""
        self.files = manifest_of or files
        folder, package = self.place / "files", self.place / "package"
        for place in (folder, package):
            shutil.rmtree(place, ignore_errors=True)
        write_files(folder, self.files)
        bundled = bundle.bundle(local(folder), package)
        manifest.write(package, bundle.add_pieces(package, bundled, silent))
        self.hub.repositories.clear()
        self.hub.add("me/model", dict(files))

    @property
    def root(self) -> Path:
        """The folder in which the app keeps models."""
        return self.place / "models"

    def start(self, *arguments: int, source: str = "") -> subprocess.Popen[str]:
        """Start the program. arguments: the free bytes, and those after which it stops."""
        source = source or f"{self.hub.url}/me/model/resolve/main"
        manifest = self.place / "package/Model" / MODEL_MANIFEST
        return subprocess.Popen(
            [self.program, source, manifest, self.root, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: int, source: str = "") -> Ended:
        """Run the program to its end."""
        with self.start(*arguments, source=source) as process:
            out, err = process.communicate()
        assert (process.returncode, err) == (0, "")
        first, _, rest = out.partition("\n")
        confirm = int(first.removeprefix("confirm "))
        kind, _, message = rest.partition(" ")
        if kind == "folder":
            return Ended(Path(message.strip()), confirm=confirm)
        error, _, words = message.partition("\n")
        return Ended(None, error, words.strip(), confirm)

    def asked(self, path: str) -> list[int]:
        """Return the pieces of a file that were asked for, by their numbers, in order."""
        ranges = [request.range for request in self.hub.asked("GET", f"/resolve/main/{path}")]
        return [int(text.removeprefix("bytes=").split("-")[0] or 0) // PIECE for text in ranges]

    def whole(self, ended: Ended) -> bool:
        """Whether the model's folder, and no other, has the files as they should be."""
        if ended.folder is None or [*self.root.iterdir()] != [ended.folder]:
            return False
        files = {
            path.relative_to(ended.folder).as_posix(): path.read_bytes()
            for path in ended.folder.rglob("*")
            if path.is_file() and path.name != MODEL_MANIFEST
        }
        return files == self.files


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the sources of the generated package that fetch a model."""
    templates = assets.root() / "swift_templates"
    folder = tmp_path_factory.mktemp("download")
    digest = (templates / "H2OKit/Bundle/FileDigest.swift").read_text("utf-8")
    assert "    import MLX\n" in digest
    (folder / "FileDigest.swift").write_text(digest.replace("    import MLX\n", ""))
    sources: Sequence[Path] = [
        folder / "FileDigest.swift",
        templates / "upstream/linux/PortableSHA256.swift",
        templates / "H2OKit/Files/RegularFile.swift",
        *(templates / "H2OKit/Bundle" / f"{name}.swift" for name in KIT),
        *sorted((templates / "Download/H2OKit/Download").glob("*.swift")),
        Path(__file__).parent / "program.swift",
    ]
    program = folder / "program"
    command = ["swiftc", "-swift-version", "6", "-warnings-as-errors", "-parse-as-library"]
    command += ["-package-name", "h2o"]
    output_of(*command, *sources, "-o", program)
    return program


@pytest.fixture
def downloads(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Downloads]:
    monkeypatch.setattr(bundle, "PIECE_SIZE", PIECE)
    hub = HubServer()
    yield Downloads(program, hub, tmp_path)
    hub.close()
