"""MLX's kernel headers with our edits: found, checked, patched and assembled.

`python -m h2o_pack.kernels.sources DESTINATION` assembles them for a compiler.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from h2o_pack import assets
from h2o_pack.errors import ExitCode, UserError
from h2o_pack.files.write import replace_file, replacing
from h2o_pack.results import Result, doc
from h2o_pack.vendoring.edits import Edit, apply, apply_all, read_edits
from h2o_py._pins import MLX_VERSION

if TYPE_CHECKING:
    from collections.abc import Sequence

State = Literal["upstream", "patched"]

EDITS = "metal/edits"
KERNELS = Path("mlx/backend/metal/kernels")
HEADER = KERNELS / "sdpa_vector.h"
SWIFT_HEADER = Path("Source/Cmlx/mlx-generated/metal/sdpa_vector.h")


@dataclass(frozen=True)
class PatchResult(Result):
    """What was done to a header."""

    path: Annotated[Path, doc("The header.")]
    version: Annotated[str, doc("Version of mlx, as major.minor, whose edits it takes.")]
    before: Annotated[State, doc("How the file was found.")]
    changed: Annotated[bool, doc("Whether it was written.")]


def versions() -> tuple[str, ...]:
    """Return the versions of mlx, as major.minor, that there are edits for."""
    names = sorted((assets.root() / EDITS).glob("mlx-*.toml"))
    return tuple(name.stem.removeprefix("mlx-") for name in names)


def edits_for(version: str) -> tuple[Edit, ...]:
    """Return the edits for a version of mlx: "0.31.1" or "0.31"."""
    minor = ".".join(version.split(".")[:2])
    if minor not in versions():
        raise UserError(
            f"there are no edits of the kernels of mlx {version}",
            where=EDITS,
            remedy=f"Use mlx {' or '.join(versions())}.",
            code=ExitCode.VERSION,
        )
    return read_edits(assets.root() / EDITS / f"mlx-{minor}.toml").edits


def patch(text: str, version: str) -> str:
    """Return sdpa_vector.h of a version of mlx with our edits, made only once.

    Raises UserError (VERSION) where the text is not as in that version.
    """
    return apply_all(text, edits_for(version))


def check(path: Path, version: str) -> Literal["upstream", "patched", "drifted"]:
    """Tell what a header is, taken as that of a version of mlx."""
    try:
        return patch_file(path, version=version, write=False).before
    except UserError as error:
        if error.code != ExitCode.VERSION:
            raise
        return "drifted"


def patch_file(path: Path, *, version: str | None, write: bool) -> PatchResult:
    """Patch a header, or that of an include folder or of a checkout of mlx-swift.

    Without a version, the one whose edits the header takes is found out. Raises
    UserError: VERSION where the header is not as in that version, or as in none.
    """
    header = find_header(path)
    text = header.read_text("utf-8")
    fitting = version or fitting_version(text)
    edits = edits_for(fitting)
    try:
        patched = apply_all(text, edits)
    except UserError as error:
        where = f"{header}: {error.where}"
        raise UserError(
            error.what, where=where, remedy=error.remedy, code=error.code
        ) from error
    changed = write and patched != text
    if changed:
        replace_file(header, patched)
    minor = ".".join(fitting.split(".")[:2])
    return PatchResult(header, minor, "patched" if patched == text else "upstream", changed)


def find_header(path: Path) -> Path:
    """Return sdpa_vector.h at `path` or at its place in one of the known layouts."""
    candidates = (path, path / HEADER, path / SWIFT_HEADER)
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise UserError(
        f"{path} is neither sdpa_vector.h nor a folder that has it",
        remedy=f"Give the header, a folder with {HEADER}, or a checkout of mlx-swift.",
        code=ExitCode.USAGE,
    )


def fitting_version(text: str) -> str:
    """Return the version whose edits a header takes, or misses by the fewest."""

    def misfit(version: str) -> tuple[int, int]:
        edits = edits_for(version)
        taken = sum(takes(text, edit) for edit in edits)
        return len(edits) - taken, -taken

    return min(versions(), key=misfit)


def takes(text: str, edit: Edit) -> bool:
    """Whether an edit finds its place in a header."""
    try:
        apply(text, edit)
    except UserError:
        return False
    return True


def upstream_headers() -> Path:
    """Return the include folder of the installed mlx, without importing it."""
    spec = importlib.util.find_spec("mlx")
    for folder in (spec and spec.submodule_search_locations) or ():
        if (Path(folder) / "include" / HEADER).is_file():
            return Path(folder) / "include"
    raise UserError(
        "mlx with its kernel headers is not installed",
        where=sys.executable,
        remedy=f"Run: pip install mlx=={MLX_VERSION}",
        code=ExitCode.TOOL,
    )


def version_of(include: Path) -> str:
    """Return the version of mlx that an include folder belongs to."""
    path = include / "mlx/version.h"
    text = path.read_text("utf-8") if path.is_file() else ""
    found = re.findall(r"^#define MLX_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)$", text, re.MULTILINE)
    if len(found) != len(("major", "minor", "patch")):
        raise UserError(
            f"{path} does not say which mlx it belongs to",
            remedy="Give the include folder of an installed mlx.",
            code=ExitCode.USAGE,
        )
    return ".".join(found)


def assemble(
    destination: Path, include: Path | None = None, version: str | None = None
) -> None:
    """Write mlx's kernel headers, sdpa_vector.h with our edits, for -I `destination`.

    include: the folder with mlx's headers, by default that of the installed mlx;
    version: its version of mlx, by default what its headers say. The files are
    exchanged all at once, and not touched when they are as they should be.
    """
    include = include or upstream_headers()
    files = {
        path.relative_to(include / KERNELS): path.read_bytes()
        for path in sorted((include / KERNELS).rglob("*.h"))
    }
    name = Path(HEADER.name)
    if name not in files:
        raise UserError(
            f"{include / HEADER} is missing",
            remedy="Give the include folder of an installed mlx.",
            code=ExitCode.USAGE,
        )
    files[name] = patch(files[name].decode(), version or version_of(include)).encode()
    target = destination / KERNELS
    if contents(target) == files:
        return
    with replacing(target) as staging:
        for relative, data in files.items():
            path = staging / relative
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


def contents(folder: Path) -> dict[Path, bytes]:
    """Return {path: bytes} of the files in a folder, nothing if there is none."""
    return {
        path.relative_to(folder): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Assemble the headers as the command line says; return its exit code."""
    parser = argparse.ArgumentParser(prog="h2o_pack.kernels.sources", description=__doc__)
    parser.add_argument("destination", type=Path, help="what the compiler gets as -I")
    parser.add_argument("--include", type=Path, help="folder with mlx's headers")
    options = parser.parse_args(arguments)
    try:
        assemble(options.destination, options.include)
    except UserError as error:
        sys.stderr.write(f"{error}\n")
        return int(error.code)
    return 0


if __name__ == "__main__":
    sys.exit(main())
