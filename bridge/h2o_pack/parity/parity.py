"""Runs the levels of parity on a package and collects their results."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import import_module, metadata
from pathlib import Path
from typing import TYPE_CHECKING

from h2o_pack.doctor.machine import Surroundings, shown
from h2o_pack.errors import BUILD_AGAIN, GET_SWIFT, UserError, tool_error, version_error
from h2o_pack.files import lock, write
from h2o_pack.files.paths import VENDOR_FOLDER, cache_folder, from_here
from h2o_pack.measure.machine import describe, scoring_kernels
from h2o_pack.models.config import read_config
from h2o_pack.parity import swift, text, text_program
from h2o_pack.parity.parity_report import CaseResult, Level, ParityReport
from h2o_pack.progress import ProgressReporter, silent
from h2o_pack.vendoring.fetch import Origin
from h2o_py._pins import VERSIONS

if TYPE_CHECKING:
    from h2o_pack.model import ModelConfig
    from h2o_pack.parity.request import TokenCase

LEVELS = {"text": 0, "op": 1, "trace": 2, "tokens": 3}
DEFAULT = ("op", "trace")
IN_SWIFT = ("text", "trace", "tokens")
WITH_MLX = ("op", "trace", "tokens")
TOOLS = {"swift": ("swift", "--version"), "xcode": ("xcodebuild", "-version")}
NO_SWIFT = f"this needs Swift, see {GET_SWIFT}"


def run_parity(
    package: Path,
    *,
    levels: Collection[str] = DEFAULT,
    require_swift: bool = False,
    upstream: Path | Origin | None = None,
    progress: ProgressReporter = silent,
) -> ParityReport:
    """Build the package if a level needs Swift, record runs of mlx-lm and check the levels.

    levels: names of LEVELS. Without a Swift toolchain the levels IN_SWIFT are reported as
    not run, or are an error if `require_swift` is set. Level tokens needs Vendor/. upstream: of
    the sources that level text needs and Vendor/ lacks; by default downloads.

    Raises UserError: the package, its model or Vendor/ is damaged or missing, MLX has another
    version, a program is missing, or the Swift package does not build.
    """
    record = lock.read(package)
    check_versions()
    check_core()
    in_swift = bool(set(levels) & set(IN_SWIFT))
    program = swift.find_swift() if in_swift else None
    if "tokens" in levels:
        check_vendored(package, program)
    if program is None and require_swift and in_swift:
        raise tool_error(
            "there is no Swift toolchain on PATH", f"Install Swift, see {GET_SWIFT}."
        )
    of_text: list[Level] = []
    if "text" in levels:
        with write.exclusive(package):
            of_text = check_texts(package.resolve(), record, program, upstream, progress)
    if not set(levels) & set(WITH_MLX):
        return report_of(package, record, levels=of_text)
    from h2o_py.config import without_warnings

    root = package.resolve()
    with ExitStack() as stack:
        stack.enter_context(write.exclusive(package))
        stack.enter_context(without_warnings())
        stack.enter_context(without_compiling())
        beside = ThreadPoolExecutor(max_workers=1)
        stack.callback(beside.shutdown, cancel_futures=True)
        host = build = None
        if program is not None:
            host = swift.prepare(root)
            build = cache(
                partial(swift.build, host, program, swift.work_folder(root), progress)
            )
        runs = [
            ModelRun(root, record, model, build, beside, progress).check(levels)
            for model in record.models
        ]
    checked = [level for _, levels_of_model in runs for level in levels_of_model]
    return report_of(
        package, record, runs[0][0], host.name if host else "", levels=[*of_text, *checked]
    )


def report_of(
    package: Path,
    record: lock.Lock,
    tokens: int = 0,
    host: str = "",
    *,
    levels: Collection[Level],
) -> ParityReport:
    """Return the report on a package; tokens: of the recorded run."""
    from h2o_py.config import H2OConfig, without_warnings

    first = record.models[0]
    with without_warnings():
        config = H2OConfig.from_dict(first.config)
    return ParityReport(
        package=str(package),
        model=first.model,
        max_kv=config.max_size if config.evicts else 0,
        tokens=tokens,
        host=host,
        levels=tuple(levels),
        machine=describe(timed=False),
        versions={name: pin["version"] for name, pin in record.upstream.items()} | tools(),
        kernels=scoring_kernels() if any(level.number for level in levels) else (),
    )


def tools() -> dict[str, str]:
    """Return the versions of Swift and Xcode, if they are on PATH."""
    versions = {}
    for name, command in TOOLS.items():
        result = Surroundings().run(*command)
        version = result.version() if result is not None else None
        if version is not None:
            versions[name] = shown(version)
    return versions


NOT_CHECKED = "not checked"


def check_texts(
    root: Path,
    record: lock.Lock,
    compiler: str | None,
    upstream: Path | Origin | None,
    say: ProgressReporter,
) -> list[Level]:
    """Check level 0 of each model: what the app's libraries for text answer.

    root: the package's folder. compiler: the path of `swift`; None if it is missing.
    """
    if compiler is None:
        return texts_not_run(record, f"{NOT_CHECKED}; {NO_SWIFT}")
    program = text_program.program(root, upstream or Origin(cache_folder()), compiler, say)
    work = swift.work_folder(root) / "text"
    levels = [text.check_text(program, root / m.folder, work, say) for m in record.models]
    return of_models(record, levels)


def texts_not_run(record: lock.Lock, reason: str) -> list[Level]:
    """Return level 0 of each model with the reason why it was not checked."""
    level = Level(text.NUMBER, text.NAME, text.COMPARED, (), reason)
    return of_models(record, [level] * len(record.models))


def of_models(record: lock.Lock, levels: Sequence[Level]) -> list[Level]:
    """Return levels with the names of their models, if the package has several."""
    if len(levels) == 1:
        return list(levels)
    pairs = zip(levels, record.models, strict=True)
    return [replace(level, model=model.model) for level, model in pairs]


def try_texts(
    package: Path, upstream: Path | Origin | None, say: ProgressReporter
) -> list[Level]:
    """Check level 0 if Swift and the sources are there; otherwise say why not, and how to.

    upstream: of the sources that Vendor/ lacks; None to download nothing. An error ends the
    check and not the caller, because the package is complete.
    """
    record, root = lock.read(package), package.resolve()
    how = f": `h2o-pack parity {from_here(root)} --level text`"
    try:
        compiler = swift.find_swift()
        if compiler is None:
            return texts_not_run(record, f"{NOT_CHECKED} without Swift{how}")
        origin = upstream or Origin(cache_folder())
        absent = text_program.missing(root, origin)
        if absent and not isinstance(upstream, Origin):
            return texts_not_run(record, f"{NOT_CHECKED} without Vendor{how}")
        return check_texts(root, record, compiler, origin, say)
    except UserError as error:
        return texts_not_run(record, f"{NOT_CHECKED}, {error.what}{how}")


@dataclass(frozen=True)
class ModelRun:
    """Checks one model of a package at each level.

    root: the package's folder. record: its lock. build: builds its Swift tests when they are
    first needed; None without Swift. beside: compares in Python while Swift builds and runs.
    progress: called with each step's name.
    """

    root: Path
    record: lock.Lock
    model: lock.LockedModel
    build: Callable[[], swift.Build] | None
    beside: Executor
    progress: ProgressReporter

    def check(self, levels: Collection[str]) -> tuple[int, list[Level]]:
        """Check levels; returns the number of tokens in the recorded run, and the results."""
        several = len(self.record.models) > 1
        work = swift.work_folder(self.root) / (self.model.folder if several else "")
        folder = self.root / self.model.folder
        described = read_config(folder / "config.json")
        tokens: int = 0
        results: list[Level] = []
        if set(levels) & set(DEFAULT):
            tokens, results = self.check_caches(levels, described, work)
        if "tokens" in levels:
            prompt_tokens, level = self.check_model(described, work)
            tokens, results = tokens or prompt_tokens, [*results, level]
        name = self.model.model if several else ""
        return tokens, [replace(level, model=name) for level in results]

    def check_caches(
        self, levels: Collection[str], described: ModelConfig, work: Path
    ) -> tuple[int, list[Level]]:
        """Check levels 1 and 2: compare caches that get the same queries, keys and values."""
        from h2o_pack.parity import op  # imported late: it imports MLX
        from h2o_pack.parity import trace as traces
        from h2o_pack.parity.request import evicting
        from h2o_py.config import H2OConfig

        config = evicting(H2OConfig.from_dict(self.model.config))
        core: list[CaseResult] = []
        caches: list[CaseResult] = []
        rows, tokens = config.max_size, 0
        self.progress("recording a run of mlx-lm")
        folder = self.root / self.model.folder
        for trace in traces.record(folder, config, described, work / "trace"):
            rows, tokens = trace.cases[0].config.max_size, sum(trace.cases[0].steps)
            compared = [
                self.beside.submit(op.compare, trace, case)
                for case in trace.cases
                if "op" in levels
            ]
            if "trace" in levels and self.build is not None:
                work_of_swift = self.root / swift.WORK
                caches += traces.replay(trace, self.build(), work_of_swift, self.progress)
            names = [case.name for case in trace.cases]
            for number, (name, result) in enumerate(zip(names, compared, strict=False), 1):
                count = f"{number} of {len(names)}"
                self.progress(f"replaying it through the reference: {name} ({count})")
                core.append(result.result())
        fewer = "" if rows == config.max_size else f", {rows} rows of {config.max_size}"
        results = []
        if "op" in levels:
            what = f"C++ core against h2o_pack.parity.reference, on inputs of mlx-lm{fewer}"
            results.append(Level(1, "op", what, tuple(core)))
        if "trace" in levels and self.build is None:
            lacks = "not checked: whether the generated Swift caches give the same results"
            what = "Swift caches against mlx-lm"
            results.append(Level(2, "trace", what, (), f"{lacks}; {NO_SWIFT}"))
        elif "trace" in levels and self.build is not None:
            what = f"Swift caches on {self.build().host.name} against mlx-lm{fewer}"
            results.append(Level(2, "trace", what, tuple(caches)))
        return tokens, results

    def check_model(self, described: ModelConfig, work: Path) -> tuple[int, Level]:
        """Check level 3: compare how the models of mlx-swift-lm and mlx-lm answer a prompt."""
        if self.build is None:
            what = "not checked: whether the model of mlx-swift-lm gives the same tokens"
            compared = "the model of mlx-swift-lm against mlx-lm"
            return 0, Level(3, "tokens", compared, (), f"{what}; {NO_SWIFT}")
        from h2o_pack.parity import request as requests  # imported late: these import MLX
        from h2o_pack.parity import tokens, trace
        from h2o_py.config import H2OConfig

        folder = self.root / self.model.folder
        request = requests.ask(
            folder,
            text.chat_of(folder),
            requests.evicting(H2OConfig.from_dict(self.model.config)),
            described.context,
            trace.quantized(described.head_dim),
            work / "tokens",
            self.own_case(),
        )
        build = self.build()
        tokens.answer(request, folder, build, self.progress)
        results = tokens.compare(request, folder, self.progress)
        level = Level(3, "tokens", tokens.describe(request, build.host), results)
        return tokens.length(request), level

    def own_case(self) -> TokenCase:
        """Return the case with the caches of the package."""
        from h2o_pack.parity.request import OWN, TokenCase
        from h2o_pack.spec import from_document
        from h2o_py.config import H2OConfig

        spec = from_document(self.record.spec, self.root / lock.NAME)
        budgets = spec.models[self.record.models.index(self.model)].cache.budgets
        config = H2OConfig.from_dict(self.model.config)
        kv, groups = self.model.kv, self.model.group_size
        return TokenCase(OWN, kv, groups, config, budgets, returns=True)


@contextmanager
def without_compiling() -> Iterator[None]:
    """Keep MLX from compiling fused operations: compiling takes longer than a short run."""
    import mlx.core as mx

    mx.disable_compile()
    try:
        yield
    finally:
        if "MLX_DISABLE_COMPILE" not in os.environ:
            mx.enable_compile()


def check_vendored(package: Path, program: str | None) -> None:
    """Raise UserError if upstream's sources are missing: the stand-in has no models."""
    folder = package / VENDOR_FOLDER
    if folder.is_dir():
        return
    too = "" if program is not None else f" It also needs Swift, see {GET_SWIFT}."
    raise tool_error(
        "level tokens runs the models of mlx-swift-lm, whose sources this package lacks",
        f"Run `h2o-pack vendor {package} --upstream PATH --host {swift.SYSTEM}` "
        f"first; its README lists the folders that PATH must contain.{too}",
        where=str(folder),
    )


def check_core() -> None:
    """Raise UserError if the compiled core cannot be loaded."""
    try:
        import_module("h2o_py.fast")
    except ImportError as error:
        raise tool_error(
            f"the compiled core cannot be loaded: {str(error).rstrip('.')}",
            BUILD_AGAIN,
        ) from error


def check_versions() -> None:
    """Raise UserError for versions of MLX and mlx-lm other than the package's."""
    for name, required in VERSIONS.items():
        try:
            installed = metadata.version(name)
        except metadata.PackageNotFoundError:
            installed = "none"
        if installed != required:
            raise version_error(
                f"{name} {installed} is installed, but this h2o-pack needs {required}",
                f"Run: pip install {name}=={required}",
            )
