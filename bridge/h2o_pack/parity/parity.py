"""Runs the levels of parity on a package and collects their results."""

# ruff: noqa: PLC0415 - imports inside functions keep `h2o-pack --help` quick

from __future__ import annotations

import warnings
from importlib import import_module, metadata
from typing import TYPE_CHECKING

from h2o_pack import lock, write
from h2o_pack.bundle import FOLDER as MODEL
from h2o_pack.errors import ExitCode, UserError
from h2o_pack.facts import pins
from h2o_pack.models.config import read_config
from h2o_pack.parity import host as hosts
from h2o_pack.parity import op, replay, toolchain
from h2o_pack.parity import trace as traces
from h2o_pack.parity.report import Level, Report

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

LEVELS = {"op": 1, "trace": 2}
NO_SWIFT = (
    "not verified: that the generated Swift caches do the same; "
    f"this needs Swift 6, see {toolchain.GET_SWIFT}"
)


def run_parity(
    package: Path,
    *,
    levels: Collection[str] = tuple(LEVELS),
    require_swift: bool = False,
    progress: Callable[[str], None] = lambda _text: None,
) -> Report:
    """Record a trace from mlx-lm and check every level against it.

    levels: names of LEVELS. Without a Swift toolchain level 2 is reported as not
    run, or is an error when `require_swift` is set.
    """
    record = lock.read(package)
    check_versions()
    swift = toolchain.find_toolchain() if "trace" in levels else None
    if swift is None and "trace" in levels and require_swift:
        raise UserError(
            "there is no Swift toolchain on PATH",
            remedy=f"Install Swift 6, see {toolchain.GET_SWIFT}.",
            code=ExitCode.TOOL,
        )
    check_core()
    from h2o_py.config import H2OConfig, H2OConfigWarning

    work = package.resolve() / hosts.WORK
    with write.exclusive(package), warnings.catch_warnings():
        warnings.simplefilter("ignore", H2OConfigWarning)
        progress("recording a run of mlx-lm")
        config = H2OConfig.from_dict(record.config)
        context = read_config(package / MODEL / "config.json").context
        trace = traces.record(package / MODEL, config, context, work / "trace")
        done = []
        if "op" in levels:
            progress("replaying it through the reference")
            done.append(
                Level(1, "op", "C++ core in mlx-lm against h2o_py.reference", op.compare(trace))
            )
        host = None
        if swift is not None:
            host = hosts.prepare(package.resolve())
            cases = replay.replay(trace, host, swift, work, progress)
            done.append(Level(2, "trace", f"Swift caches on {host.name} against mlx-lm", cases))
        elif "trace" in levels:
            done.append(Level(2, "trace", "Swift caches against mlx-lm", (), NO_SWIFT))
    return Report(
        package=str(package),
        model=record.model,
        max_kv=config.max_size,
        tokens=sum(trace.cases[0].steps),
        host=host.name if host else "",
        levels=tuple(done),
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
    for name in ("mlx", "mlx-lm"):
        wanted = pins()[name].version
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
