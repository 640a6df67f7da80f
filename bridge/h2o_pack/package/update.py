"""Updates a package: plans it again from its lock, and finds the changes."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from rich.console import Console

from h2o_pack import __version__
from h2o_pack.bundling import manifest
from h2o_pack.errors import version_error
from h2o_pack.files import lock
from h2o_pack.files.paths import ADAPTER, MODEL_MANIFEST
from h2o_pack.files.user_files import digest_of
from h2o_pack.files.write import Content, as_bytes
from h2o_pack.models.adapter import WEIGHTS
from h2o_pack.package.build import PackageResult, build, is_complete
from h2o_pack.package.package_result import IosResult, print_result
from h2o_pack.package.prepare import prepare
from h2o_pack.package.render import STATES, AppState, render_files
from h2o_pack.plan.package_plan import PackagePlan
from h2o_pack.progress import ProgressReporter
from h2o_pack.results import Result, doc
from h2o_pack.spec import PackageSpec, from_document
from h2o_pack.vendoring.fetch import Origin

Part = Literal["tool", "model", "upstream", "plan", "file", "vendor", "app"]
OF_THE_CACHE = ("config", "kv", "group_size")
OF_THE_PLAN = ("package", "module", "spec")


@dataclass(frozen=True)
class Change:
    """A part of a package that an update changes."""

    part: Annotated[Part, doc("Kind of the change.")]
    name: Annotated[str, doc("Name of a setting or a repository, or path of a file.")]
    before: Annotated[str, doc('Present value; "" if there is none.')]
    after: Annotated[str, doc('New value; "" if it is removed.')]
    yours: Annotated[
        bool,
        doc("Whether the file was changed since h2o-pack wrote it, and goes to Replaced."),
    ] = False

    def __str__(self) -> str:
        if self.part == "file":
            return f"file {self.name}: {self._file()}"
        return f"{self.part} {self.name}: {self.before or 'none'} -> {self.after or 'none'}"

    def _file(self) -> str:
        """Say in words what happens to a file."""
        if self.yours:
            return "you changed it; your version goes to Replaced"
        if not self.before:
            return "is missing"
        return "h2o-pack writes another content now" if self.after else "is removed"


@dataclass(frozen=True, kw_only=True)
class UpdateResult(Result):
    """The changes of an update, and the new package."""

    package: Annotated[Path, doc("The package's folder.")]
    changes: Annotated[tuple[Change, ...], doc("All changes, made or planned.")]
    made: Annotated[IosResult | None, doc("The new package; null if nothing was written.")]


@dataclass(frozen=True)
class Update:
    """A planned update and its changes.

    upstream: the source of Vendor/; None if the package has no Vendor/. new_app: whether the
    user requests the newest scaffold of the app.
    """

    package: Path
    plan: PackagePlan
    changes: tuple[Change, ...]
    upstream: Path | Origin | None = None
    new_app: bool = False

    @property
    def needed(self) -> bool:
        """Whether the update changes anything."""
        return self.new_app or any(change.part != "app" for change in self.changes)

    def make(self, say: ProgressReporter) -> PackageResult:
        """Make the package again."""
        return build(self.plan, self.package, self.upstream, say, new_app=self.new_app)


def planned(
    package: Path, origin: Path | Origin, say: ProgressReporter, *, new_app: bool = False
) -> Update:
    """Plan the update of a package; Vendor/ is made again only if the package has one.

    Raises UserError: the folder is not a package, a newer h2o-pack made it, or its model or its
    options can no longer be used.
    """
    package = package.resolve()
    record = lock.read(package)
    plan = prepare(spec_of(package, record), say, package)
    files, app = render_files(plan, package, new_app=new_app)
    say("comparing the model's files")
    differences = (*changes(package, record, files, app), *of_models(package, plan))
    upstream = origin if record.vendor is not None else None
    return Update(package, plan, differences, upstream, new_app)


def spec_of(package: Path, record: lock.Lock) -> PackageSpec:
    """Return the spec from which a package was made.

    Raises UserError: a newer h2o-pack made the package, or its lock has options that this
    version does not know.
    """
    if numbers(record.h2o_pack) > numbers(__version__):
        raise version_error(
            f"h2o-pack {record.h2o_pack} made the package, and this is {__version__}",
            f"Install h2o-pack {record.h2o_pack} or newer.",
            where=str(package / lock.NAME),
        )
    return from_document(record.spec, package / lock.NAME)


def numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, for comparisons."""
    return tuple(map(int, re.findall(r"\d+", version)))


def changes(
    package: Path, record: lock.Lock, files: Mapping[str, Content], app: AppState
) -> Iterator[Change]:
    """Yield the differences between a package and the files that an update would write."""
    new = json.loads(files[lock.NAME])
    old = json.loads(record.to_json())
    if old["h2o_pack"] != new["h2o_pack"]:
        yield Change("tool", "h2o-pack", old["h2o_pack"], new["h2o_pack"])
    yield from models(old, new)
    for name in sorted(old["upstream"].keys() | new["upstream"].keys()):
        before, after = (document["upstream"].get(name, {}) for document in (old, new))
        if before != after:
            yield Change("upstream", name, shown_pin(before), shown_pin(after))
    for name in OF_THE_PLAN:
        yield from settings(name, old[name], new[name])
    for path in sorted(old["files"].keys() | (files.keys() - {lock.NAME})):
        before, after = on_disk(package / path), digest(files.get(path))
        if before != after:
            written = old["files"].get(path, "")[:12]
            yield Change("file", path, before, after, yours=before not in ("", written))
    if record.vendor and not is_complete(package, record):
        yield Change("vendor", "Vendor", "out of date or incomplete", "made again")
    if app == "outdated":
        yield Change("app", "App", "yours", STATES[app])


def of_models(package: Path, plan: PackagePlan) -> Iterator[Change]:
    """Yield files of local models and adapters, and written ones, that differ from before."""
    for planned_model in plan.models:
        model, folder = planned_model.model, planned_model.folder
        if not os.path.lexists(package / folder / MODEL_MANIFEST):
            continue
        before = {file.path: file.sha256 for file in manifest.read(package, folder).files}
        source = planned_model.source
        after = {}
        if model.folder is not None and not model.commit:
            after = {file.path: on_disk(model.folder / file.path) for file in source.files}
        if source.resolved is not None:
            written = source.resolved.written.items()
            after |= {path: lock.sha256(file.content)[:12] for path, file in written}
        if source.adapter is not None:
            after[ADAPTER] = on_disk(source.adapter.folder / WEIGHTS)
        for path, becomes in sorted(after.items()):
            was = before.get(path, "")[:12]
            if was != becomes:
                yield Change("model", f"{folder}/{path}", was, becomes)


def models(old: Any, new: Any) -> Iterator[Change]:
    """Yield the differences between the models of two locks, and between their caches."""
    before, after = (
        {model["folder"]: model for model in record["models"]} for record in (old, new)
    )
    for folder in sorted(before.keys() | after.keys()):
        was, becomes = before.get(folder), after.get(folder)
        if was is None or becomes is None:
            left, added = ("" if model is None else model["model"] for model in (was, becomes))
            yield Change("model", folder, left, added)
            continue
        if (was["model"], was["commit"]) != (becomes["model"], becomes["commit"]):
            commits = (was["commit"][:12], becomes["commit"][:12])
            yield Change("model", becomes["model"], *commits)
        for name in OF_THE_CACHE:
            yield from settings(f"{folder}.{name}", was[name], becomes[name])


def settings(name: str, old: Any, new: Any) -> Iterator[Change]:
    """Yield the change of a setting, or the changes in a table of settings."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            yield from settings(f"{name}.{key}", old.get(key), new.get(key))
    elif old != new:
        yield Change("plan", name, json.dumps(old), json.dumps(new))


def shown_pin(pin: Mapping[str, str]) -> str:
    """Write a pin's version and the first characters of its commit."""
    return " ".join(filter(None, (pin.get("version", ""), pin.get("commit", "")[:12])))


def on_disk(place: Path) -> str:
    """Return the first characters of a file's sha256; "" if there is no file."""
    return digest_of(place)[:12] if place.is_file() else ""


def digest(content: Content | None) -> str:
    """Return the first characters of a content's sha256; "" if there is no content."""
    return "" if content is None else lock.sha256(as_bytes(content))[:12]


def print_changes(update: Update, console: Console, *, dry_run: bool) -> None:
    """Show the changes, files last."""
    for change in update.changes:
        console.print(str(change), markup=False)
    if not update.needed:
        console.print("nothing to change")
    elif dry_run:
        console.print("nothing was written: this was a dry run")


def print_update(result: PackageResult | None, console: Console) -> None:
    """Show the new package; show nothing if `result` is None."""
    if result is not None:
        print_result(result, {}, console)
