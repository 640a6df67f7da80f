"""Runs the checks that this machine supports: parity, then memory and speed of the model."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory

import mlx.core as mx

from h2o_pack import __version__
from h2o_pack.doctor.machine import Surroundings, shown
from h2o_pack.errors import ExitCode, UserError
from h2o_pack.files import lock
from h2o_pack.files.paths import VENDOR_FOLDER
from h2o_pack.hub.resolve import resolve
from h2o_pack.measure import models
from h2o_pack.measure.bench import bench
from h2o_pack.measure.held import FULL, WINDOW, HeldRun, held_by
from h2o_pack.measure.machine import processor, usable_cores
from h2o_pack.memory.terms import KV, LEDGER, WEIGHTS, MemoryPlan
from h2o_pack.package.build import build
from h2o_pack.package.prepare import prepare
from h2o_pack.parity.parity import DEFAULT, LEVELS, NO_SWIFT, WITH_MLX, run_parity
from h2o_pack.parity.report import NOT_RUN, Level, sentence
from h2o_pack.parity.swift import SYSTEM, find_swift
from h2o_pack.plan.measured import MLX
from h2o_pack.plan.workload import Workload
from h2o_pack.progress import ProgressReporter
from h2o_pack.prove.report import (
    ProofReport,
    ProvenLevel,
    ProvenMachine,
    ProvenMemory,
    ProvenSpeed,
)
from h2o_pack.spec import AppSpec, CacheSpec, ModelSpec, PackageSpec
from h2o_pack.vendoring.fetch import Origin
from h2o_pack.vendoring.vendor import vendor
from h2o_py._compiled import ext
from h2o_py._pins import VERSIONS

STEP = 128  # tokens of a prompt that the model reads at once
CONVERSATION = 600  # tokens whose peak is measured
GENERATED = 64  # tokens whose speed is measured
LONGEST = 400  # characters of a text
PACKAGE = "Package"
SYSTEMS = {"Darwin": "macOS", "Linux": "Linux"}
TOOLS = {"swift": ("swift", "--version"), "xcode": ("xcodebuild", "-version")}
NO_VENDOR = "the package has no Vendor folder; `h2o-pack vendor` makes it"
NO_UPSTREAM = (
    "upstream's sources are missing: --vendor downloads them, --upstream names a folder of them"
)


def run(
    model: str,
    max_kv: int,
    package: Path | None,
    upstream: Path | Origin | None,
    say: ProgressReporter,
) -> ProofReport:
    """Run all checks that this machine supports; the report says why the others did not.

    package: a package to test; None to make one of `model` with `max_kv` rows, for whose
    Vendor/ `upstream` is the source, or which has none.
    """
    if package is not None:
        record = lock.read(package)
        model, max_kv = record.models[0].model, int(record.models[0].config["max_size"])
        levels = levels_of(package, NO_VENDOR, say)
    else:
        with new_package(model, max_kv, upstream, say) as (made, no_vendor):
            record = lock.read(made)
            levels = levels_of(made, no_vendor, say)
    say("peak memory")
    memory = memory_of(model, max_kv)
    speed = speed_of(model, max_kv, say)
    is_folder = Path(model).is_dir()  # the path of a folder may contain the user's name
    return ProofReport(
        tool="h2o-pack",
        date=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        machine=machine(),
        versions={name: pin["version"] for name, pin in record.upstream.items()} | versions(),
        model=Path(model).name if is_folder else model,
        max_kv=max_kv,
        kv="dense",
        levels=levels,
        memory=memory,
        speed=speed,
        kernels=kernels(),
    )


@contextmanager
def new_package(
    model: str, max_kv: int, upstream: Path | Origin | None, say: ProgressReporter
) -> Iterator[tuple[Path, str]]:
    """Make a package that is deleted afterwards; yield it, and why it has no Vendor/ or ""."""
    with TemporaryDirectory(prefix="h2o-prove-") as folder:
        output = Path(folder).resolve() / PACKAGE
        cache = CacheSpec(max_kv=max_kv)
        spec = PackageSpec((ModelSpec(model, cache),), app=AppSpec(name=PACKAGE))
        build(prepare(spec, say, output), output, None, say)
        yield output, fill_vendor(upstream, output, say)


def fill_vendor(upstream: Path | Origin | None, package: Path, say: ProgressReporter) -> str:
    """Fill Vendor/ for this system; return why this failed, or ""."""
    if upstream is None:
        return NO_UPSTREAM
    if find_swift() is None:
        return NO_SWIFT
    try:
        vendor(package, upstream, SYSTEM, say, offline=isinstance(upstream, Path))
    except UserError as error:
        return f"{error.what}. {error.remedy}"
    return ""


def levels_of(package: Path, no_vendor: str, say: ProgressReporter) -> tuple[ProvenLevel, ...]:
    """Run the levels that package and machine support; return for the others why they did not.

    no_vendor: why the package has no Vendor/.
    """
    names = WITH_MLX if (package / VENDOR_FOLDER).is_dir() else DEFAULT
    try:
        levels = run_parity(package, levels=names, progress=say).levels
        reason = no_vendor
    except UserError as error:
        if error.code != ExitCode.TOOL:  # Swift, or a tool that it needs, is missing
            raise
        levels = run_parity(package, levels=("op",), progress=say).levels
        reason = f"{error.what}. {error.remedy}"
    absent = sorted({LEVELS[name] for name in WITH_MLX} - {level.number for level in levels})
    return (
        *map(proven_level, levels),
        *(
            ProvenLevel(number, NOT_RUN, detail=text(reason))  # type: ignore[arg-type]
            for number in absent
        ),
    )


def proven_level(level: Level) -> ProvenLevel:
    """Convert a level's result to the form of a report."""
    first = next((case for case in level.cases if case.first_difference), None)
    detail = level.not_run
    if first is not None and first.first_difference is not None:
        detail = f"{first.name}: {sentence(first.first_difference)}"
    largest = max((case.largest_output_difference for case in level.cases), default=0.0)
    return ProvenLevel(
        number=level.number,  # type: ignore[arg-type]
        verdict=level.verdict,
        cases=len(level.cases),
        largest_output_difference=min(largest, 1e38),  # JSON has no infinity
        detail=text(detail),
    )


def text(words: str) -> str:
    """Return a text without the user's home folder, shortened for a report."""
    return words.replace(str(Path.home()), "~")[:LONGEST]


def memory_of(name: str, max_kv: int) -> tuple[ProvenMemory, ...]:
    """Measure memory with H2O caches, next to the plan, and peaks with mlx-lm's caches."""
    caches = ("dense", FULL, WINDOW)
    h2o, full, window = held_by(
        models.loadable(name), [HeldRun(cache, max_kv, STEP, CONVERSATION) for cache in caches]
    )
    plan = plan_of(name, max_kv)
    return (
        ProvenMemory(WEIGHTS, h2o.weights, plan.of(WEIGHTS)),
        ProvenMemory(KV, h2o.rows, plan.of(KV)),
        ProvenMemory(LEDGER, h2o.ledger, plan.of(LEDGER)),
        ProvenMemory(MLX, h2o.peak, plan.mlx),
        ProvenMemory(f"{MLX} with {FULL}", full.peak),
        ProvenMemory(f"{MLX} with {WINDOW}", window.peak),
        ProvenMemory("process", h2o.footprint),
    )


def plan_of(name: str, max_kv: int) -> MemoryPlan:
    """Plan the memory of the run that `memory_of` measures."""
    workload = Workload(resolve(name), (), context=CONVERSATION, step=STEP)
    return workload.with_max_kv(max_kv).plan("mac" if gpu() else "cpu")


def speed_of(name: str, max_kv: int, say: ProgressReporter) -> tuple[ProvenSpeed, ...]:
    """Measure decoding and reading a prompt with each cache, as `h2o-pack bench` does."""
    caches = bench(models.loadable(name), max_kv, GENERATED, quick=True, say=say).caches
    return (
        *(ProvenSpeed(f"decode, {cache.title}", cache.tokens_per_second) for cache in caches),
        *(ProvenSpeed(f"prefill, {e.title}", e.prompt_tokens_per_second) for e in caches),
    )


def kernels() -> tuple[str, ...]:
    """Return the Metal kernels that wrote scores in this process."""
    return tuple(sorted(ext.scoring_pipelines())) if gpu() else ()


def gpu() -> str:
    """Return the name of the GPU that MLX runs on; "" on a CPU."""
    if mx.default_device() != mx.Device(mx.gpu):
        return ""
    return str(mx.device_info().get("device_name", "GPU"))


def machine() -> ProvenMachine:
    """Describe this machine."""
    is_mac = platform.system() == "Darwin"
    model = Surroundings().run("sysctl", "-n", "hw.model") if is_mac else None
    return ProvenMachine(
        identifier=model.line if model is not None and model.code == 0 else platform.machine(),
        chip=processor(),
        gpu=gpu(),
        cores=usable_cores(),
        memory_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        system=SYSTEMS[platform.system()],  # type: ignore[arg-type]
        system_version=platform.mac_ver()[0] if is_mac else platform.release(),
    )


def versions() -> dict[str, str]:
    """Return the versions of h2o-pack and of its installed dependencies, by name."""
    here = Surroundings()
    found_versions = {"h2o-pack": __version__, "python": platform.python_version()}
    found_versions |= {name: metadata.version(name) for name in VERSIONS}
    for name, command in TOOLS.items():
        result = here.run(*command)
        version = result.version() if result is not None else None
        if version is not None:
            found_versions[name] = shown(version)
    return found_versions
