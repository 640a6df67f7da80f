"""Runs the levels of parity on a package and collects their results."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module, metadata
from pathlib import Path
from typing import TYPE_CHECKING

from h2o_pack.errors import GET_SWIFT, ExitCode, UserError
from h2o_pack.files import lock, write
from h2o_pack.files.layout import VENDOR_FOLDER
from h2o_pack.models.config import read_config
from h2o_pack.parity import swift
from h2o_pack.parity.report import CaseResult, Level, Report
from h2o_py._pins import VERSIONS

if TYPE_CHECKING:
    from h2o_pack.parity.request import TokenCase

LEVELS = {"op": 1, "trace": 2, "tokens": 3}
DEFAULT = ("op", "trace")
IN_SWIFT = ("trace", "tokens")
NO_SWIFT = f"this needs Swift, see {GET_SWIFT}"


def run_parity(
    package: Path,
    *,
    levels: Collection[str] = DEFAULT,
    require_swift: bool = False,
    progress: Callable[[str], None] = lambda _text: None,
) -> Report:
    """Record runs of mlx-lm and check every level against them.

    levels: names of LEVELS. Without a Swift toolchain the levels IN_SWIFT are reported as
    not run, or are an error when `require_swift` is set. Level tokens needs Vendor/.
    """
    record = lock.read(package)
    check_versions()
    in_swift = bool(set(levels) & set(IN_SWIFT))
    programs = swift.find_toolchain() if in_swift else None
    if "tokens" in levels:
        check_vendored(package, programs)
    if programs is None and require_swift and in_swift:
        raise UserError(
            "there is no Swift toolchain on PATH",
            remedy=f"Install Swift, see {GET_SWIFT}.",
            code=ExitCode.TOOL,
        )
    check_core()
    from h2o_py.errors import H2OConfigWarning

    root = package.resolve()
    with ExitStack() as stack:
        stack.enter_context(write.exclusive(package))
        stack.enter_context(warnings.catch_warnings())
        stack.enter_context(without_compiling())
        warnings.simplefilter("ignore", H2OConfigWarning)
        build = None
        if programs is not None:
            host = swift.prepare(root)
            progress("building the Swift package")
            build = swift.build(host, programs, root / swift.WORK, progress)
        runs = [
            check_model(root, record, model, levels, build, progress) for model in record.models
        ]
    return Report(
        package=str(package),
        model=record.models[0].model,
        max_kv=record.models[0].config["max_size"],
        tokens=runs[0].tokens,
        host=build.host.name if build else "",
        levels=tuple(level for run in runs for level in run.levels),
    )


@dataclass(frozen=True)
class ModelRun:
    """What was compared of one model. tokens: of the recorded run."""

    tokens: int
    levels: tuple[Level, ...]


def check_model(
    root: Path,
    record: lock.Lock,
    model: lock.LockedModel,
    levels: Collection[str],
    build: swift.Build | None,
    progress: Callable[[str], None],
) -> ModelRun:
    """Check every level of one of the package's models."""
    from h2o_pack.parity import op, rounding, tokens  # all of these need MLX
    from h2o_pack.parity import request as requests
    from h2o_pack.parity import trace as traces
    from h2o_py.config import H2OConfig

    folder, work = root / model.folder, root / swift.WORK
    name = ""
    if len(record.models) > 1:
        work, name = work / model.folder, model.model
    described = read_config(folder / "config.json", assume_full_attention=True)
    config = H2OConfig.from_dict(model.config)
    seen, done = 0, []
    if set(levels) & set(DEFAULT):
        in_core: list[CaseResult] = []
        in_swift: list[CaseResult] = []
        rows = config.max_size
        progress("recording a run of mlx-lm")
        for trace in traces.record(folder, config, described.context, work / "trace"):
            rows, seen = trace.cases[0].config.max_size, sum(trace.cases[0].steps)
            if "op" in levels:
                progress("replaying it through the reference")
                in_core += op.compare(trace)
            if "trace" in levels and build is not None:
                in_swift += traces.replay(trace, build, root / swift.WORK, progress)
        fewer = "" if rows == config.max_size else f", {rows} rows of {config.max_size}"
        if "op" in levels:
            compared = f"C++ core in mlx-lm against h2o_pack.parity.reference{fewer}"
            done.append(Level(1, "op", compared, tuple(in_core)))
        if "trace" in levels:
            done.append(trace_level(tuple(in_swift), build, fewer))
    if "tokens" in levels and build is None:
        what = "not verified: that the model of mlx-swift-lm says the same"
        compared = "the model of mlx-swift-lm against mlx-lm"
        done.append(Level(3, "tokens", compared, (), f"{what}; {NO_SWIFT}"))
    elif "tokens" in levels and build is not None:
        progress("running the model in mlx-lm")
        request = requests.ask(
            folder,
            config,
            described.context,
            traces.quantized(described.head_dim),
            work / "tokens",
            own_case(root, record),
        )
        seen = seen or len(request.prompt) + requests.DECODED
        tokens.answer(request, folder, build, progress)
        compared = tokens.describe(request, build.host)
        runs = partial(rounding.runs, folder, request)
        done.append(Level(3, "tokens", compared, tokens.compare(request, runs)))
    return ModelRun(seen, tuple(replace(level, model=name) for level in done))


def trace_level(
    results: tuple[CaseResult, ...], build: swift.Build | None, fewer: str
) -> Level:
    """Return what the Swift caches made of the trace, if there is Swift."""
    if build is None:
        what = "not verified: that the generated Swift caches do the same"
        return Level(2, "trace", "Swift caches against mlx-lm", (), f"{what}; {NO_SWIFT}")
    compared = f"Swift caches on {build.host.name} against mlx-lm{fewer}"
    return Level(2, "trace", compared, results)


@contextmanager
def without_compiling() -> Iterator[None]:
    """Keep MLX from compiling fused operations.

    It would start a C++ compiler for each of them, for more seconds than a run takes here.
    """
    import mlx.core as mx

    mx.disable_compile()
    try:
        yield
    finally:
        if "MLX_DISABLE_COMPILE" not in os.environ:
            mx.enable_compile()


def own_case(package: Path, record: lock.Lock) -> TokenCase | None:
    """Return a case of the package's own budgets and storage, if its layers differ."""
    from h2o_pack.parity.request import BY_LAYER, TokenCase
    from h2o_pack.spec import from_document
    from h2o_py.config import H2OConfig

    budgets = from_document(record.spec, package / lock.NAME).models[0].cache.budgets
    if budgets is None:
        return None
    model = record.models[0]
    config = H2OConfig.from_dict(model.config)
    return TokenCase(f"kv {model.kv}{BY_LAYER}", model.kv, model.group_size, config, budgets)


def check_vendored(package: Path, programs: swift.Toolchain | None) -> None:
    """Refuse level 3 without upstream's sources: the stand-in has no models."""
    folder = package / VENDOR_FOLDER
    if folder.is_dir():
        return
    too = "" if programs is not None else f" It also needs Swift, see {GET_SWIFT}."
    raise UserError(
        "level tokens runs the models of mlx-swift-lm, whose sources this package lacks",
        where=str(folder),
        remedy=f"Run `h2o-pack vendor {package} --upstream PATH --host {swift.SYSTEM}` "
        f"first; its README lists what PATH holds.{too}",
        code=ExitCode.TOOL,
    )


def check_core() -> None:
    """Refuse to go on without the compiled module, whose parity is asked for."""
    try:
        import_module("h2o_py.fast")
    except ImportError as error:
        raise UserError(
            f"the compiled core cannot be loaded: {str(error).rstrip('.')}",
            remedy="Install h2o-pack again; building it needs a C++ compiler.",
            code=ExitCode.TOOL,
        ) from error


def check_versions() -> None:
    """Refuse versions of MLX that the trace would not be comparable with."""
    for name, wanted in VERSIONS.items():
        try:
            found = metadata.version(name)
        except metadata.PackageNotFoundError:
            found = "none"
        if found != wanted:
            raise UserError(
                f"{name} {found} is installed, and this h2o-pack is made for {wanted}",
                remedy=f"Run: pip install {name}=={wanted}",
                code=ExitCode.VERSION,
            )
