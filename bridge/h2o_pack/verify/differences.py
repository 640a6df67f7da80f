"""What can differ between a package and its records."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

FORMAT = 1
Part = Literal["generated", "model", "vendor", "records"]
Kind = Literal["missing", "changed", "size", "content", "added", "not a file", "other"]


@dataclass(frozen=True)
class Difference:
    """One thing that is not as recorded.

    path: relative to the package. size: the bytes differ, so nothing was hashed;
    content: same size, other sha256; changed: of a generated or edited text.
    """

    part: Part
    path: str
    kind: Kind
    detail: str

    def __str__(self) -> str:
        return f"{self.path} {self.detail}"


@dataclass(frozen=True)
class Verification:
    """What a check of `package` found. quick: model files by size only.

    vendor: "checked", "not made" (nothing recorded), or "missing". files, bytes: of the
    package and how much of it was compared.
    """

    package: str
    model: str
    commit: str
    quick: bool
    vendor: str
    files: int
    bytes: int
    differences: tuple[Difference, ...]

    def document(self) -> dict[str, Any]:
        """Return the result for JSON."""
        return {"format": FORMAT, "same": not self.differences, **asdict(self)}
