"""Builds and runs a package's Swift tests, with its Vendor/ folder or with the CPU stand-in."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from h2o_pack import assets
from h2o_pack.errors import UserError, output_error, tool_error, version_error
from h2o_pack.facts import pins
from h2o_pack.files import lock
from h2o_pack.files.paths import VENDOR_FOLDER, is_folder, place_in
from h2o_pack.parity.openblas import preload
from h2o_pack.vendoring.edits import edits_of
from h2o_pack.vendoring.vendor import added_files, digest
from h2o_py.files import read_file

WORK = ".parity"
SCRATCH = ("build", "vendored")
"""Folders in WORK for Swift's builds, beside the stand-in and with Vendor."""
VENDORED_BUILD = f"{WORK}/{SCRATCH[1]}"
STANDIN = "swift_templates/standin"
CMLX = f"{VENDOR_FOLDER}/mlx-swift/Source/Cmlx/"
GENERATED = ("Sources", "Tests")
SYSTEM = "linux" if sys.platform == "linux" else "apple"
OPTIMIZED = ("-Xcxx", "-O2")
"""Optimize MLX's C++; without this a model takes several times as long on a CPU."""
CACHES_ONLY = """
if Context.environment["H2O_CACHES_ONLY"] != nil {
    let caches = ["H2OKit", "H2OKitTests"]
    package.products.removeAll { !caches.contains($0.name) }
    package.targets.removeAll { !caches.contains($0.name) }
}
"""
"""Ends Package.swift beside the stand-in. Parity runs only the tests of the caches, which
compile in a third of the time of all tests."""
LEAN = (
    *("-Xswiftc", "-gnone", "-Xcxx", "-g0"),
    *("-Xswiftc", "-index-ignore-system-modules", "--disable-swift-testing"),
)
"""Leave out what tests do not need: debug information, an index of the system's modules, which
doubles the time to read Foundation, and the test runner of Swift Testing."""


@dataclass(frozen=True)
class Host:
    """A package to build: its upstream, its root, and SwiftPM's scratch folder and flags.

    settings: environment variables with which parity builds it.
    """

    name: str
    root: Path
    scratch: Path
    flags: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def options(self) -> tuple[str, ...]:
        """Return the options of `swift build` and `swift test`."""
        places = ("--package-path", str(self.root), "--scratch-path", str(self.scratch))
        return (*places, *LEAN, *self.flags)


def work_folder(package: Path) -> Path:
    """Return the folder of parity's files in a package; writing in it changes nothing else.

    What Swift's builds write below it is not looked at: they also run the package's code.
    Raises UserError: it is a link, or contains a link, a pipe or a device.
    """
    work = place_in(package, f"{WORK}/file").parent
    for above, folders, names in os.walk(work):
        for name in (*folders, *names):
            place = Path(above, name)
            if not (is_folder(place) or stat.S_ISREG(place.lstat().st_mode)):
                raise output_error(
                    f"{place} is neither a file nor a folder",
                    f"Delete the folder {work} and run the command again.",
                )
        if Path(above) == work:
            folders[:] = [name for name in folders if name not in SCRATCH]
    return work


def prepare(package: Path) -> Host:
    """Return the host for `package`, with up-to-date files."""
    if (package / VENDOR_FOLDER).is_dir():
        return vendored(package)
    work = work_folder(package)
    root = work / "package"
    sync(standin_files(package), root)
    name = f"the CPU stand-in for mlx-swift {pins()['mlx-swift'].version}"
    return Host(name, root, work / SCRATCH[0], settings={"H2O_CACHES_ONLY": "1"})


def vendored(package: Path) -> Host:
    """Return the host of a package with Vendor/.

    Raises UserError: Vendor/ was made for another host, or with edits of another version.
    """
    record = lock.read(package)
    vendor = record.vendor
    again = f"Run `h2o-pack vendor {package} --host {SYSTEM}` again"
    if vendor is None or vendor.edits != digest(assets.root()):
        raise version_error(
            f"{VENDOR_FOLDER}/ was not made by this version of h2o-pack",
            f"{again}, or move the folder away.",
            where=str(package / VENDOR_FOLDER),
        )
    if vendor.host != SYSTEM:
        raise version_error(
            f"{VENDOR_FOLDER}/ was made for the host {vendor.host}, and this is {SYSTEM}",
            f"{again}.",
            where=str(package / VENDOR_FOLDER),
        )
    by_name = pins()
    stands_on = (f"{name} {by_name[name].version}" for name in ("mlx-swift", "mlx-swift-lm"))
    name = f"{' with '.join(stands_on)} (vendored)"
    return Host(name, package, package / VENDORED_BUILD, flags=OPTIMIZED)


def standin_files(package: Path) -> dict[str, Path | str]:
    """Return {path: source} of the package with the stand-in as its Vendor/.

    A file of the stand-in replaces the file that vendoring adds at the same path.
    The stand-in's C++ is compiled as one file, because reading MLX's headers takes longer than
    compiling all of it. The files of inner loops include no header of MLX and stay separate.
    """
    manifest = read_file(package / "Package.swift").decode()
    files: dict[str, Path | str] = {"Package.swift": manifest + CACHES_ONLY}
    for folder in GENERATED:
        files |= tree(package / folder, folder)
    root = assets.root()
    added = added_files(root, edits_of(root).applying(SYSTEM).files)
    files |= {f"{VENDOR_FOLDER}/{path}": source for path, source in added.items()}
    files |= tree(root / STANDIN, VENDOR_FOLDER)
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
    """Make `root` contain exactly these files or texts; write only files that changed."""
    paths = {root / path for path in files}
    for path in sorted(root.rglob("*")) if root.exists() else ():
        if path.is_file() and path not in paths:
            path.unlink()
    for name, source in files.items():
        target = root / name
        data = source.encode() if isinstance(source, str) else read_file(source)
        if not target.is_file() or target.read_bytes() != data:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)


SHOWN_LINES = 12
LOG = "swift.log"
UNREACHABLE = re.compile(
    r"(?:clone|fetch) repository (\S+?):?$|unable to access '([^']+)'", re.MULTILINE
)
"""Matches the messages of SwiftPM and git that name a package they cannot fetch."""
KERNELS = f"{CMLX}mlx-generated/metal"
METALLIB = "mlx.metallib"
"""The library of Metal kernels that MLX loads from its binary's folder. `swift build` does
not make it."""
METAL_FLAGS = ("-fno-fast-math",)
"""Flags with which MLX compiles its wheel's library
(mlx/backend/metal/kernels/CMakeLists.txt)."""


def find_swift() -> str | None:
    """Return the path of `swift`, None if it is not on PATH.

    Raises UserError: Swift's compiler finds no C++ headers.
    """
    swift = shutil.which("swift")
    if swift is not None:
        check_cxx(Path(swift).resolve().parent)
    return swift


def check_cxx(folder: Path) -> None:
    """Compile a line of C++ to check that Swift's clang finds the system's C++ library.

    folder: of the Swift toolchain's programs. Raises UserError: the line does not compile.
    """
    beside = folder / "clang++"
    compiler = str(beside) if beside.exists() else shutil.which("c++") or shutil.which("g++")
    if compiler is not None:
        command = [compiler, "-x", "c++", "-fsyntax-only", "-"]
        source = b"#include <vector>\n"
        process = subprocess.run(command, input=source, capture_output=True, check=False)  # noqa: S603
        if process.returncode == 0:
            return
    raise tool_error(
        "there is no working C++ compiler",
        "Install one: `apt install g++` on Debian, `xcode-select --install` on macOS.",
        where=compiler,
    )


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a build, which links the wheel's MLX and turns off its JIT."""
    spec = importlib.util.find_spec("mlx")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    roots = [folder for folder in folders if (Path(folder) / "lib").is_dir()]
    if not roots:
        raise version_error(
            "the Python package mlx has no library to link with",
            "Install h2o-pack again, with its dependencies.",
        )
    return {
        **os.environ,
        "MLX_ROOT": roots[0],
        "MLX_DISABLE_COMPILE": "1",
        **extra,
    }


@dataclass(frozen=True)
class Build:
    """A package whose Swift tests are built; log: the file with the output of commands."""

    host: Host
    swift: str
    log: Path

    def run_tests(
        self, tests: str, settings: Mapping[str, str], on_line: Callable[[str], None]
    ) -> int:
        """Run a class of tests; returns the exit status.

        settings: environment variables. on_line: called with each line of output.
        """
        test = [self.swift, "test", *self.host.options, "--skip-build", "--filter", tests]
        extra = {**self.host.settings, **preload(), **settings}
        return run_command(test, self.log, environment(extra), on_line)

    def products(self) -> Path:
        """Return the folder of the built binaries."""
        command = [self.swift, "build", *self.host.options, "--show-bin-path"]
        process = subprocess.run(  # noqa: S603
            command, env=environment({}), capture_output=True, text=True, check=True
        )
        return Path(process.stdout.strip())


def build(host: Host, swift: str, work: Path, on_line: Callable[[str], None]) -> Build:
    """Build a package's tests; UserError with Swift's messages if they do not build."""
    on_line("building the Swift package")
    product = Build(host, swift, work / LOG)
    command = [swift, "build", *host.options, "--build-tests"]
    if run_command(command, product.log, environment(host.settings), on_line):
        raise failure("swift build", product.log)
    if needs_metallib(host):
        place_metallib(host, product.products())
    return product


def run_command(
    command: Sequence[str],
    log: Path,
    env: Mapping[str, str],
    on_line: Callable[[str], None],
) -> int:
    """Run a command; returns its exit status.

    Its output is written to `log`, and `on_line` is called with each line.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with (
        log.open("w", encoding="utf-8") as file,
        subprocess.Popen(  # noqa: S603
            command,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process,
    ):
        try:
            for line in process.stdout or ():
                file.write(line)
                on_line(line.rstrip())
        except BaseException:
            process.terminate()
            raise
    return process.returncode


def failure(what: str, log: Path) -> UserError:
    """Make the error for a failed command, with the lines of the log that give the reason."""
    text = log.read_text("utf-8", errors="replace")
    addresses = {clone or access for clone, access in UNREACHABLE.findall(text)}
    if addresses:
        names = sorted({address.rstrip("/").removesuffix(".git") for address in addresses})
        return tool_error(
            f"{what} cannot fetch packages that upstream depends on: {', '.join(names)}",
            "Run `h2o-pack vendor DIR --offline` on a machine that can reach them: it copies "
            "them into Vendor. Or name a mirror of each: `swift package config "
            "set-mirror --original ADDRESS --mirror ADDRESS`.",
            where=f"the whole output is in {log}",
        )
    lines = text.splitlines()
    errors = [line for line in lines if "error:" in line]
    excerpt = "\n  ".join((errors or lines)[-SHOWN_LINES:])
    return tool_error(
        f"{what} failed:\n  {excerpt}\n",
        "Correct the error and run the command again.",
        where=f"the whole output is in {log}",
    )


def needs_metallib(host: Host) -> bool:
    """Return whether a host's tests use MLX's Metal backend, which needs a kernel library."""
    return SYSTEM == "apple" and (host.root / KERNELS).is_dir()


def place_metallib(host: Host, products: Path) -> None:
    """Put MLX's kernel library beside the binaries of a package's tests.

    The library is compiled again if a kernel changed. products: the folder that `swift build
    --show-bin-path` names. Raises UserError: the kernels do not compile.
    """
    library = host.root / WORK / METALLIB
    if not is_current(library, host.root / KERNELS):
        compile_library(host.root, library)
    for folder in sorted(products.glob("*.xctest/Contents/MacOS")):
        shutil.copyfile(library, folder / METALLIB)


def is_current(library: Path, kernels: Path) -> bool:
    """Return whether a library is newer than all of its sources."""
    if not library.is_file():
        return False
    sources = (path for path in kernels.rglob("*") if path.is_file())
    return all(path.stat().st_mtime <= library.stat().st_mtime for path in sources)


def compile_library(package: Path, library: Path) -> None:
    """Compile all of MLX's kernels in a package's Vendor/ into one library for macOS."""
    sources = sorted((package / KERNELS).rglob("*.metal"))
    library.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=library.parent) as work:
        compiled = [Path(work, f"{number}.air") for number in range(len(sources))]
        for source, air in zip(sources, compiled, strict=True):
            xcrun("metal", *METAL_FLAGS, "-c", source, "-o", air)
        linked = Path(work, METALLIB)
        xcrun("metallib", "-o", linked, *compiled)
        linked.replace(library)


def xcrun(tool: str, *arguments: str | Path) -> None:
    """Run one of Apple's tools for macOS; UserError with the tool's message if it fails."""
    command: Sequence[str | Path] = ("xcrun", "-sdk", "macosx", tool, *arguments)
    try:
        process = subprocess.run(  # noqa: S603
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        raise no_compiler("xcrun is missing") from None
    if process.returncode != 0:
        raise no_compiler(process.stderr.strip() or f"{tool} exits with {process.returncode}")


def no_compiler(reason: str) -> UserError:
    """Make the error for kernels that do not compile; reason: the tool's message."""
    return tool_error(
        f"MLX's Metal kernels do not compile: {reason}",
        "Install Apple's Metal compiler: xcodebuild -downloadComponent MetalToolchain",
    )
