"""A model repository as the hub has it: commits, branches, who may read it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.hub.contents import Content

LARGE = (".safetensors", ".bin", ".gguf", "tokenizer.json", "tokenizer.model")


@dataclass
class Repository:
    """Commits by id, each {path: content}, and branches and tags by name.

    gated: reading a file needs `token`, its listing does not. private: all needs it.
    moved_to: the id of the repository that it is called now.
    """

    id: str
    commits: dict[str, dict[str, Content]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    gated: bool = False
    private: bool = False
    token: str = ""
    moved_to: str = ""

    def commit(self, files: Mapping[str, Content | bytes | str], branch: str = "main") -> str:
        """Make `files` the whole content of a branch; return the commit's id, 40 digits."""
        made = {path: as_content(path, each) for path, each in files.items()}
        text = "".join(f"{path}\0{each.etag}\n" for path, each in sorted(made.items()))
        number = str(len(self.commits))
        digest = hashlib.sha1(f"{self.id}\0{number}\0{text}".encode("utf-8", "replace"))  # noqa: S324 - git's
        self.commits[digest.hexdigest()] = made
        self.refs[branch] = digest.hexdigest()
        return digest.hexdigest()

    def resolve(self, revision: str) -> str:
        """Return the commit that a branch, a tag or a commit's id names, or nothing."""
        return self.refs.get(revision, revision if revision in self.commits else "")


def as_content(path: str, given: Content | bytes | str) -> Content:
    """Return what is given as Content; the file's name decides whether it is in LFS."""
    if isinstance(given, Content):
        return given
    data = given.encode() if isinstance(given, str) else given
    return Content(data, lfs=path.endswith(LARGE))
