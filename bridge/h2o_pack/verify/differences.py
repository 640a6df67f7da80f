"""What can differ between a package and its records."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from h2o_pack.results import Count, Result, doc

Part = Literal["generated", "model", "vendor", "records"]
Kind = Literal["missing", "changed", "size", "content", "not a file", "other"]
VendorState = Literal["checked", "not made", "missing"]


@dataclass(frozen=True)
class Difference:
    """One thing that is not as recorded."""

    part: Annotated[Part, doc("Where.")]
    path: Annotated[str, doc("Relative to the package.")]
    kind: Annotated[
        Kind,
        doc(
            "How: a model's file differs in size (nothing was hashed) or content (sha256), a "
            "generated or edited text is changed."
        ),
    ]
    detail: Annotated[str, doc("The same in words.")]

    def __str__(self) -> str:
        return f"{self.path} {self.detail}"


@dataclass(frozen=True)
class UsersFile:
    """A file of the user's: added to what h2o-pack wrote, or in the app and changed."""

    path: Annotated[str, doc("Relative to the package.")]
    detail: Annotated[str, doc("What it does there.")]

    def __str__(self) -> str:
        return f"{self.path} {self.detail}"


@dataclass(frozen=True)
class Verification(Result):
    """How a package differs from its lock and manifests. The exit code is 1 when it does."""

    same: Annotated[bool, doc("Whether there are no differences.")] = field(init=False)
    package: Annotated[str, doc("The package's folder.")]
    model: Annotated[str, doc("The model by the lock.")]
    commit: Annotated[str, doc("The hub's commit by the manifest, empty for a local model.")]
    quick: Annotated[bool, doc("Whether the model's files were compared by size only.")]
    vendor: Annotated[VendorState, doc("Whether Vendor is recorded in the lock, and there.")]
    files: Annotated[Count, doc("Files compared.")]
    bytes: Annotated[Count, doc("Bytes of the model's files by the manifest.")]
    differences: Annotated[tuple[Difference, ...], doc("All that differs.")]
    users: Annotated[
        tuple[UsersFile, ...],
        doc("Files of the user's; with --strict they make the exit code 1 too."),
    ]

    def __post_init__(self) -> None:
        object.__setattr__(self, "same", not self.differences)
