"""Proves what this machine does: every part in turn, each with what it lacks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from tempfile import TemporaryDirectory

from h2o_pack.errors import UserError
from h2o_pack.files import lock
from h2o_pack.files.digests import sha256_of
from h2o_pack.files.text import writing
from h2o_pack.measure.models import loadable
from h2o_pack.parity.host import SYSTEM
from h2o_pack.parity.parity import NO_SWIFT, check_core, check_versions
from h2o_pack.parity.toolchain import find_toolchain
from h2o_pack.plan.options import CacheOptions
from h2o_pack.progress import ProgressReporter
from h2o_pack.prove import own
from h2o_pack.prove.checksum import with_checksum
from h2o_pack.prove.ids import MEMORY, PARTS, SPEED, part_of
from h2o_pack.prove.notes import Notes
from h2o_pack.prove.report import TIME, Counts, Digests, ProofReport, Setting
from h2o_pack.results import to_json
from h2o_pack.vendoring.fetch import Origin
from h2o_pack.vendoring.vendor import vendor

STEP = 128  # tokens of a prompt that the model reads at once
CONVERSATION = 600  # tokens whose peak is measured
PACKAGE = "Package"
NO_VENDOR = "the package has no Vendor folder: `h2o-pack vendor` fills it"
NO_UPSTREAM = (
    "upstream's sources were not asked for: --vendor fetches them, --upstream names them"
)


@dataclass(frozen=True)
class Options:
    """What to prove.

    model: alias, folder or id. max_kv: rows of a layer. package: one of that model to take in
    place of a new one. upstream: what a new one's Vendor/ is filled from; None leaves it out.
    """

    model: str = "demo"
    max_kv: int = 128
    package: Path | None = None
    upstream: Path | Origin | None = None


def run(options: Options, say: ProgressReporter) -> ProofReport:
    """Run all that this machine can, and say of the rest why not.

    Raises:
        UserError: the model or the package cannot be used, or MLX is of another version.

    """
    check_versions()
    check_core()
    from h2o_pack.prove import levels, machine, memory, pipelines, published, speed  # need MLX

    here = machine.describe()
    started = now()
    backend = "mac" if here.gpu else "cpu"
    with package_of(options, say) as (package, no_vendor):
        record = lock.read(package)
        setting = Setting(
            model=options.model if options.package is None else record.model,
            max_kv=int(record.config["max_size"]),
            kv="dense",
            context=CONVERSATION,
            prefill_step=STEP,
            backend=backend,
        )
        notes = Notes(setting)
        model = loadable(setting.model)
        levels.prove_kernels(notes, say)
        levels.prove_package(notes, package, say, no_vendor)
        pipelines.prove_pipelines(notes)
        pipelines.prove_dispatches(notes)
        say("peak memory")
        with noted(notes, MEMORY):
            memory.prove_memory(notes, model)
        with noted(notes, SPEED):
            speed.prove_speed(notes, model, say)
        published.prove_published(notes, say)
        digest = sha256_of(package / lock.NAME)
    report = ProofReport(
        tool="h2o-pack",
        started=started,
        finished=now(),
        commit=own.commit(),
        versions={name: pin["version"] for name, pin in record.upstream.items()}
        | machine.versions(),  # Python's mlx, not the one in mlx-swift
        machine=here,
        digests=Digests(own.digest_of_model(setting.model), digest, own.kernels_digest()),
        setting=replace(setting, model=own.public_name(setting.model)),
        checks=tuple(notes.checks),
        counts=Counts.of(notes.checks),
    )
    missing = set(PARTS[report.tool]) - {part_of(check.id) for check in report.checks}
    if missing:
        raise AssertionError(f"nothing was noted of {missing}")
    return with_checksum(report)


@contextmanager
def noted(notes: Notes, part: str) -> Iterator[None]:
    """Note that a part could not be run, and why."""
    try:
        yield
    except UserError as error:
        notes.skip(f"{part}/all", part, "h2o-pack prove", f"{error.what}. {error.remedy}")


@contextmanager
def package_of(options: Options, say: ProgressReporter) -> Iterator[tuple[Path, str]]:
    """Give the package that was named, or a new one that lasts as long as the block.

    With it comes why it has no Vendor/, for level 3.
    """
    if options.package is not None:
        yield options.package, NO_VENDOR
        return
    with TemporaryDirectory(prefix="h2o-prove-") as folder:
        output = Path(folder).resolve() / PACKAGE
        make_package(options, output, say)
        yield output, fill_vendor(options.upstream, output, say)


def make_package(options: Options, output: Path, say: ProgressReporter) -> None:
    """Make a package of the model; UserError if it cannot be packaged."""
    from h2o_pack.package.build import build
    from h2o_pack.package.prepare import prepare
    from h2o_pack.package.request import PackageRequest

    caches = CacheOptions(max_kv=options.max_kv)
    request = PackageRequest(options.model, caches, name=PACKAGE, output=output)
    build(prepare(request, say), request, say)


def fill_vendor(upstream: Path | Origin | None, package: Path, say: ProgressReporter) -> str:
    """Fill Vendor/ for this system; return why it could not be, "" if it was.

    A folder of upstream's sources has all of them, so that building fetches nothing.
    """
    if upstream is None:
        return NO_UPSTREAM
    if find_toolchain() is None:
        return NO_SWIFT
    try:
        vendor(package, upstream, SYSTEM, say, offline=isinstance(upstream, Path))
    except UserError as error:
        return f"{error.what}. {error.remedy}"
    return ""


def write(report: ProofReport, path: Path) -> None:
    """Write a report.

    Raises:
        UserError: it cannot be written there.

    """
    with writing(path):
        path.write_text(to_json(report) + "\n", encoding="utf-8")


def now() -> str:
    """Return the time as reports have it."""
    return datetime.now(timezone.utc).strftime(TIME)
