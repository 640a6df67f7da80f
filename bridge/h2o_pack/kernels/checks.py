"""The checks of Metal code: each says what it found, or why it could not look."""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta

from h2o_pack.errors import UserError
from h2o_pack.files.download_folder import cache_folder
from h2o_pack.kernels import host_types, symbols, text, wheels
from h2o_pack.kernels.address_spaces import check_address_spaces
from h2o_pack.kernels.findings import Finding
from h2o_pack.kernels.language import check_language
from h2o_pack.kernels.limits import check_buffers, check_limits
from h2o_pack.kernels.prepared import Prepared, prepare
from h2o_pack.kernels.translation import Translation, find_clang, translate
from h2o_pack.results import Result, doc

if TYPE_CHECKING:
    from collections.abc import Callable

State = Literal["passed", "failed", "skipped"]
PASSED: State = "passed"
FAILED: State = "failed"
SKIPPED: State = "skipped"
GET_CLANG = "Install clang: `apt install clang` on Debian, or Swift from swift.org/install."
GET_WHEELS = "Give --download, or the folder of the files with --wheels."


class Skip(Exception):  # noqa: N818
    """A check cannot run here: (why, what to do)."""


@dataclass(frozen=True)
class CheckResult:
    """What a check found."""

    name: Annotated[str, doc("The check's name.")]
    about: Annotated[str, doc("What holds when it passes.")]
    state: Annotated[State, doc("What came of it.")]
    seconds: Annotated[float, Meta(ge=0), doc("How long it took.")]
    findings: Annotated[tuple[str, ...], doc("Each as FILE:LINE: what is wrong.")] = ()
    detail: Annotated[str, doc("Why it was skipped, or empty.")] = ""
    remedy: Annotated[str, doc("What to do then, or empty.")] = ""


@dataclass(frozen=True)
class ChecksResult(Result):
    """What a Mac would refuse of the kernels and the C++ beside them."""

    passed: Annotated[bool, doc("Whether no check failed; skipped ones do not count.")] = field(
        init=False
    )
    checks: Annotated[
        tuple[CheckResult, ...], doc("All checks, in the order in which they ran.")
    ]

    def __post_init__(self) -> None:
        object.__setattr__(self, "passed", all(each.state != FAILED for each in self.checks))


@dataclass
class Workplace:
    """What several checks need, made once.

    folder: for what is made; kernels: instead of ours; macos: unpacks the macOS wheels.
    """

    folder: Path
    kernels: Path | None = None
    macos: Callable[[], Path | None] = lambda: None
    compiled: bool = field(default=False, init=False)

    @cached_property
    def prepared(self) -> Prepared:
        """The kernels as clang can read them."""
        return prepare(self.folder / "kernels", self.kernels)

    @cached_property
    def translations(self) -> tuple[Translation, ...]:
        """The kernels as clang read them."""
        clang = find_clang()
        if clang is None:
            raise Skip("there is no clang on PATH", GET_CLANG)
        return tuple(
            translate(self.prepared, library, clang) for library in self.prepared.libraries
        )

    @cached_property
    def wheels(self) -> Path:
        """The folder of the unpacked macOS wheels."""
        found = self.macos()
        if found is None:
            raise Skip("the macOS wheels of mlx are not here", GET_WHEELS)
        return found

    @property
    def objects(self) -> Path:
        """Where the compiled C++ is."""
        return self.folder / "objects"


def language(work: Workplace) -> list[Finding]:
    """Kernels use nothing that Metal lacks."""
    return [
        finding
        for translation in work.translations
        for finding in check_language(translation, work.prepared)
    ]


def address_spaces(work: Workplace) -> list[Finding]:
    """Pointers stay in their address spaces."""
    return sorted(
        {
            finding
            for translation in work.translations
            for finding in check_address_spaces(translation, work.prepared)
        }
    )


def limits(work: Workplace) -> list[Finding]:
    """Threadgroup memory and buffers are within Metal's limits."""
    found = check_buffers(work.prepared)
    for translation in work.translations:
        if not translation.ir:
            raise Skip("a kernel does not compile", "See the other checks.")
        found += check_limits(translation, work.prepared)
    return found


def host(work: Workplace) -> list[Finding]:
    """The C++ fits the Metal headers of each mlx for macOS."""
    compiler = host_types.find_compiler()
    if compiler is None:
        raise Skip("there is no clang++ on PATH", GET_CLANG)
    newest, *others = wheels.mlx_folders(work.wheels)
    jobs = [(newest, host_types.host_sources())]
    jobs += [(mlx, host_types.metal_sources()) for mlx in others]
    found = [
        finding
        for mlx, sources in jobs
        for finding in host_types.compile_host(mlx, compiler, work.objects / mlx.name, sources)
    ]
    work.compiled = not found
    return sorted(set(found))


def needed_symbols(work: Workplace) -> list[Finding]:
    """Each macOS libmlx exports what the C++ needs."""
    nm = symbols.find_nm()
    if nm is None:
        raise Skip("there is no llvm-nm on PATH", GET_CLANG)
    folders = wheels.mlx_folders(work.wheels)
    if not work.compiled:
        raise Skip("the C++ is not compiled", "See the check of host types.")
    return [
        finding
        for mlx in folders
        for finding in symbols.check_symbols(mlx, work.objects / mlx.name, nm)
    ]


def metal_compiler(_work: Workplace) -> list[Finding]:
    """MLX compiles every instance of the kernels."""
    if sys.platform != "darwin":
        raise Skip("Apple's compiler runs on macOS only", "Run it on a Mac as well.")
    return [
        Finding(f"{text.FOLDER}/{kernel.header}", 0, words)
        for kernel in text.kernels()
        for arguments in kernel.instances
        if (words := refusal(kernel.name, arguments))
    ]


def refusal(kernel: str, arguments: tuple[str, ...]) -> str:
    """Return what MLX says when it cannot compile an instance, or nothing."""
    from h2o_py._compiled import ext

    try:
        ext.compile_kernel(kernel, arguments)
    except RuntimeError as error:
        return f"{text.instance_name(kernel, arguments)}: {error}"
    return ""


CHECKS: dict[str, Callable[[Workplace], list[Finding]]] = {
    "language": language,
    "address spaces": address_spaces,
    "limits": limits,
    "host types": host,
    "symbols": needed_symbols,
    "Metal compiler": metal_compiler,
}


def find_wheels(
    given: Path | None, *, may_download: bool, say: Callable[[str], None]
) -> Path | None:
    """Return the unpacked macOS wheels: from a folder, the cache, or the index."""
    cache = cache_folder()
    if given is not None:
        return wheels.unpack(given, cache)
    return wheels.download(cache, say) if may_download else wheels.unpacked(cache)


def run_checks(
    *,
    given_wheels: Path | None = None,
    may_download: bool = False,
    kernels: Path | None = None,
    say: Callable[[str], None] = lambda _text: None,
) -> ChecksResult:
    """Run all checks that can run on this machine."""
    with tempfile.TemporaryDirectory(prefix="h2o-kernels-") as name:
        work = Workplace(
            Path(name).resolve(),
            kernels,
            lambda: find_wheels(given_wheels, may_download=may_download, say=say),
        )
        return ChecksResult(tuple(run_check(name, work, say) for name in CHECKS))


def run_check(name: str, work: Workplace, say: Callable[[str], None]) -> CheckResult:
    """Run one check; what a tool refuses is a finding."""
    check = CHECKS[name]
    about = (check.__doc__ or "").rstrip(".")
    say(f"checking: {about}")
    begin = time.perf_counter()

    def result(state: State, **more: object) -> CheckResult:
        return CheckResult(name, about, state, round(time.perf_counter() - begin, 3), **more)  # type: ignore[arg-type]

    try:
        findings = check(work)
    except Skip as skipped:
        why, remedy = skipped.args
        return result(SKIPPED, detail=why, remedy=remedy)
    except UserError as error:
        return result(FAILED, findings=(str(error),), remedy=error.remedy)
    return result(FAILED if findings else PASSED, findings=tuple(map(str, findings)))
