"""Models to bundle: local folders, and repositories of the loopback hub."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from h2o_pack.model import ModelFile as File
from h2o_pack.progress import BarAdvance
from tests.hub.repository import Repository


@dataclass(frozen=True)
class Model:
    id: str
    files: tuple[File, ...]
    commit: str = ""
    folder: Path | None = None


def local(folder: Path, *names: str) -> Model:
    """Describe files of a folder, all when none are named."""
    paths = names or sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )
    files = tuple(File(path, (folder / path).stat().st_size) for path in paths)
    return Model(folder.name, files, folder=folder)


def remote(repository: Repository, *names: str) -> Model:
    """Describe a repository's files at its branch main, as its listing does."""
    commit = repository.refs["main"]
    contents = repository.commits[commit]
    files = tuple(
        File(path, content.size, content.sha256 if content.lfs else "")
        for path, content in contents.items()
        if not names or path in names
    )
    return Model(repository.id, files, commit)


def until(holds: Callable[[], object], seconds: float = 60) -> None:
    """Wait until something holds that a process or a thread brings about."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError


class Bars:
    """A `ProgressReporter` that remembers its bars as {text: (total, what was told)}."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.bars: dict[str, tuple[int, int]] = {}

    def __call__(self, text: str, *, done: bool = False) -> None:  # noqa: ARG002
        self.lines.append(text)

    @contextmanager
    def bar(self, text: str, total: int, unit: str = "bytes") -> Iterator[BarAdvance]:  # noqa: ARG002
        self.bars[text] = (total, 0)

        def advance(amount: int) -> None:
            self.bars[text] = (total, self.bars[text][1] + amount)

        yield advance
