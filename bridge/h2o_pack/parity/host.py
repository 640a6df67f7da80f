"""Where a package's Swift tests run: on its Vendor/ folder or on the CPU stand-in."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from h2o_pack import assets
from h2o_pack.errors import ExitCode, UserError
from h2o_pack.facts import pins
from h2o_pack.files import lock
from h2o_pack.files.layout import VENDOR_FOLDER
from h2o_pack.vendoring.edits import edits_of
from h2o_pack.vendoring.vendor import added_files, digest

WORK = ".parity"
VENDORED_BUILD = f"{WORK}/vendored"
STANDIN = "swift_templates/standin"
CMLX = f"{VENDOR_FOLDER}/mlx-swift/Source/Cmlx/"
GENERATED = ("Sources", "Tests")
SYSTEM = "linux" if sys.platform == "linux" else "apple"


@dataclass(frozen=True)
class Host:
    """A package to build: its root, SwiftPM's scratch folder, and what it stands on.

    flags: more options of `swift build` and `swift test`.
    """

    name: str
    root: Path
    scratch: Path
    flags: tuple[str, ...] = ()

    @property
    def options(self) -> tuple[str, ...]:
        """Return what `swift build` and `swift test` need; nobody debugs what they make."""
        places = ("--package-path", str(self.root), "--scratch-path", str(self.scratch))
        return (*places, "-Xswiftc", "-gnone", "-Xcxx", "-g0", *self.flags)


def prepare(package: Path) -> Host:
    """Return the host for `package`, made up to date."""
    if (package / VENDOR_FOLDER).is_dir():
        return vendored(package)
    root = package / WORK / "package"
    sync(standin_files(package), root)
    name = f"the CPU stand-in for mlx-swift {pins()['mlx-swift'].version}"
    return Host(name, root, package / WORK / "build")


def vendored(package: Path) -> Host:
    """Check that Vendor/ was made for this machine by the current edits."""
    record = lock.read(package)
    version, made = record.upstream_version, record.vendor
    again = f"Run `h2o-pack vendor {package} --host {SYSTEM}` again"
    if made is None or made.edits != digest(assets.root(), version):
        raise UserError(
            f"{VENDOR_FOLDER}/ was not made by this version of h2o-pack",
            where=str(package / VENDOR_FOLDER),
            remedy=f"{again}, or move the folder away.",
            code=ExitCode.VERSION,
        )
    if made.host != SYSTEM:
        raise UserError(
            f"{VENDOR_FOLDER}/ was made for the host {made.host}, and this is {SYSTEM}",
            where=str(package / VENDOR_FOLDER),
            remedy=f"{again}.",
            code=ExitCode.VERSION,
        )
    known = pins(version)
    stands_on = (f"{name} {known[name].version}" for name in ("mlx-swift", "mlx-swift-lm"))
    name = f"{' with '.join(stands_on)} (vendored)"
    return Host(name, package, package / VENDORED_BUILD)


def standin_files(package: Path) -> dict[str, Path | str]:
    """Return {path: source} of the package with the stand-in as its Vendor/.

    The stand-in compiles its C++ as one file, since MLX's headers take longer to read than
    all of it to compile; the inner loops include none of them and stay apart.
    """
    files: dict[str, Path | str] = {"Package.swift": package / "Package.swift"}
    for folder in GENERATED:
        files |= tree(package / folder, folder)
    root = assets.root()
    files |= tree(root / STANDIN, VENDOR_FOLDER)
    ours = added_files(root, edits_of(root).applying(SYSTEM).files)
    files |= {f"{VENDOR_FOLDER}/{path}": source for path, source in ours.items()}
    sources = [path for path in files if path.startswith(CMLX) and path.endswith(".cpp")]
    names = sorted({path.removeprefix(CMLX) for path in sources} - {"h2o/kernels.cpp"})
    return files | {f"{CMLX}all.cpp": "".join(f'#include "{name}"\n' for name in names)}


def tree(folder: Path, name: str) -> dict[str, Path]:
    """Return {path below `name`: source} of all files in a folder."""
    paths = {path.relative_to(folder): path for path in sorted(folder.rglob("*"))}
    return {
        f"{name}/{relative.as_posix()}": path
        for relative, path in paths.items()
        if path.is_file() and ".build" not in relative.parts
    }


def sync(files: Mapping[str, Path | str], root: Path) -> None:
    """Make `root` hold just these files or texts, touching only what changed.

    SwiftPM compiles again what is newer than its last build.
    """
    wanted = {root / path for path in files}
    for path in sorted(root.rglob("*")) if root.exists() else ():
        if path.is_file() and path not in wanted:
            path.unlink()
    for name, source in files.items():
        target = root / name
        data = source.encode() if isinstance(source, str) else source.read_bytes()
        if not target.is_file() or target.read_bytes() != data:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
