"""Finds and runs the Swift toolchain; failures show the compiler's words."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from h2o_pack.errors import ExitCode, UserError
from h2o_pack.parity import metallib
from h2o_pack.parity.host import Host

SHOWN_LINES = 12
LOG = "swift.log"
POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Toolchain:
    """The programs that building a package takes."""

    swift: str


def find_toolchain() -> Toolchain | None:
    """Return the Swift toolchain on PATH; UserError when it has no C++ headers."""
    swift = shutil.which("swift")
    if swift is None:
        return None
    check_cxx(Path(swift).resolve().parent)
    return Toolchain(swift)


def check_cxx(folder: Path) -> None:
    """Compile one line of C++, as Swift's clang needs the system's C++ library."""
    beside = folder / "clang++"
    compiler = str(beside) if beside.exists() else shutil.which("c++") or shutil.which("g++")
    if compiler is not None:
        command = [compiler, "-x", "c++", "-fsyntax-only", "-"]
        source = b"#include <vector>\n"
        done = subprocess.run(command, input=source, capture_output=True, check=False)  # noqa: S603
        if done.returncode == 0:
            return
    raise UserError(
        "there is no working C++ compiler",
        where=compiler,
        remedy="Install one: `apt install g++` on Debian, `xcode-select --install` on macOS.",
        code=ExitCode.TOOL,
    )


def environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a build: the wheel's MLX, and no JIT compiler."""
    spec = importlib.util.find_spec("mlx")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    roots = [folder for folder in folders if (Path(folder) / "lib").is_dir()]
    if not roots:
        raise UserError(
            "the Python package mlx has no library to link with",
            remedy="Install h2o-pack again, with its dependencies.",
            code=ExitCode.VERSION,
        )
    return {
        **os.environ,
        "MLX_ROOT": roots[0],
        "MLX_DISABLE_COMPILE": "1",
        **extra,
    }


@dataclass(frozen=True)
class Build:
    """A package whose tests are being built; `run_tests` waits for that."""

    host: Host
    process: subprocess.Popen[bytes]
    swift: Toolchain
    log: Path

    def run_tests(
        self, tests: str, settings: Mapping[str, str], on_line: Callable[[str], None]
    ) -> int:
        """Run a class of the package's tests; UserError when it did not build.

        settings: of the tests' environment. Returns the exit status; the log has the rest.
        """
        told = 0
        while self.process.poll() is None:
            lines = whole_lines(self.log)
            for line in lines[told:]:
                on_line(line)
            told = len(lines)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(POLL_SECONDS)
        if self.process.returncode:
            raise failure("swift build", self.log)
        if metallib.is_needed(self.host):
            metallib.place(self.host, self.products())
        test = [self.swift.swift, "test", *self.host.options, "--skip-build", "--filter", tests]
        return run(test, self.log, environment(settings), on_line)

    def products(self) -> Path:
        """Return the folder of what was built."""
        command = [self.swift.swift, "build", *self.host.options, "--show-bin-path"]
        done = subprocess.run(  # noqa: S603
            command, env=environment({}), capture_output=True, text=True, check=True
        )
        return Path(done.stdout.strip())


@contextmanager
def building(host: Host, swift: Toolchain, work: Path) -> Iterator[Build]:
    """Build a package's tests in the background; stop that if the block fails."""
    log = work / LOG
    log.parent.mkdir(parents=True, exist_ok=True)
    with (
        log.open("wb") as file,
        subprocess.Popen(  # noqa: S603
            [swift.swift, "build", *host.options, "--build-tests"],
            env=environment({}),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        try:
            yield Build(host, process, swift, log)
        except BaseException:
            process.terminate()
            raise


def whole_lines(log: Path) -> list[str]:
    """Return the lines that a program has finished writing to its log so far."""
    *lines, _ = log.read_text("utf-8", errors="replace").split("\n")
    return [line.rstrip() for line in lines]


def run(
    command: Sequence[str],
    log: Path,
    env: Mapping[str, str],
    on_line: Callable[[str], None],
) -> int:
    """Run a command, its output into `log` and line by line to `on_line`."""
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
    """Make the error for a failed build, with the lines that say why."""
    lines = log.read_text("utf-8", errors="replace").splitlines()
    errors = [line for line in lines if "error:" in line]
    shown = "\n  ".join((errors or lines)[-SHOWN_LINES:])
    return UserError(
        f"{what} failed:\n  {shown}\n",
        where=f"all of it is in {log}",
        remedy="Correct that and run it again.",
        code=ExitCode.TOOL,
    )
