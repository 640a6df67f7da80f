"""What `update` does: ask again for what a package was made of, say what changes, do it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from h2o_pack.bundling import manifest
from h2o_pack.files import lock
from h2o_pack.files.content import Content, as_bytes
from h2o_pack.files.kept import digest_of
from h2o_pack.files.layout import ADAPTER, MODEL_MANIFEST
from h2o_pack.models.adapter import WEIGHTS
from h2o_pack.package.app import STATES, AppState
from h2o_pack.package.build import PackageResult, build
from h2o_pack.package.prepare import prepare
from h2o_pack.package.replay import replayed
from h2o_pack.package.request import PackageRequest
from h2o_pack.package.summary import IosResult
from h2o_pack.package.tables import print_made
from h2o_pack.plan.package_plan import Plan
from h2o_pack.progress import ProgressReporter
from h2o_pack.results import Result, doc
from h2o_pack.vendoring.fetch import Origin

if TYPE_CHECKING:
    from rich.console import Console

Part = Literal["tool", "model", "upstream", "plan", "file", "vendor", "app"]
OF_THE_CACHE = ("config", "kv", "group_size")
OF_THE_PLAN = ("package", "module", *OF_THE_CACHE, "budgets", "recall_layers")


@dataclass(frozen=True)
class Change:
    """Something of a package that an update changes."""

    part: Annotated[Part, doc("What kind of thing it is.")]
    name: Annotated[str, doc("Which one: a setting, a repository, a file's path.")]
    before: Annotated[str, doc('What it is now; "" if it is not there.')]
    after: Annotated[str, doc('What it becomes; "" if it goes.')]

    def __str__(self) -> str:
        return f"{self.part} {self.name}: {self.before or 'none'} -> {self.after or 'none'}"


@dataclass(frozen=True, kw_only=True)
class UpdateResult(Result):
    """What an update changes."""

    package: Annotated[Path, doc("The package's folder.")]
    changes: Annotated[tuple[Change, ...], doc("All that changes, or would.")]
    made: Annotated[
        IosResult | None, doc("The package as made; null where nothing was written.")
    ]


@dataclass(frozen=True)
class Update:
    """An update that is planned: the request, what follows from it, and what changes."""

    package: Path
    request: PackageRequest
    plan: Plan
    changes: tuple[Change, ...]

    @property
    def needed(self) -> bool:
        """Whether there is something to do."""
        return self.request.new_app or any(each.part != "app" for each in self.changes)

    def make(self, say: ProgressReporter) -> PackageResult:
        """Do it."""
        return build(self.plan, self.request, say)


@contextmanager
def planned(
    package: Path, origin: Path | Origin, say: ProgressReporter, *, new_app: bool = False
) -> Iterator[Update]:
    """Yield the update of a package; what it needs is there until the caller is done.

    Vendor/ is made again only where there is one.

    Raises:
        UserError: the folder is no package, a newer h2o-pack made it, or the model or its
            options cannot be used any more.

    """
    from h2o_pack.package.contents import render_files

    package = package.resolve()
    record = lock.read(package)
    with replayed(package, record) as replay:
        upstream = origin if record.vendor is not None else None
        request = replace(replay, upstream=upstream, new_app=new_app)
        plan = prepare(request, say)
        files, app = render_files(plan, package, new_app=new_app)
        say("comparing the model's files")
        found = (*changes(package, record, files, app), *of_local_models(package, plan))
        yield Update(package, request, plan, found)


def changes(
    package: Path, record: lock.Lock, files: Mapping[str, Content], app: AppState
) -> Iterator[Change]:
    """Yield what differs between a package and the files that would be written to it."""
    from h2o_pack.vendoring.vendor import current
    from h2o_pack.verify.vendor import compare_vendor

    new = json.loads(files[lock.NAME])
    old = json.loads(record.to_json())
    if old["h2o_pack"] != new["h2o_pack"]:
        yield Change("tool", "h2o-pack", old["h2o_pack"], new["h2o_pack"])
    yield from models(old, new)
    for name in sorted(old["upstream"].keys() | new["upstream"].keys()):
        before, after = (each["upstream"].get(name, {}) for each in (old, new))
        if before != after:
            yield Change("upstream", name, shown_pin(before), shown_pin(after))
    for name in OF_THE_PLAN:
        if old[name] != new[name]:
            yield from settings(name, old[name], new[name])
    for path in sorted(old["files"].keys() | (files.keys() - {lock.NAME})):
        before, after = on_disk(package / path), digest(files.get(path))
        if before != after:
            yield Change("file", path, before, after)
    vendor = record.vendor
    if vendor is not None:
        made_so = current(vendor, new["upstream_version"])
        if not made_so or compare_vendor(package, record).differences:
            yield Change("vendor", "Vendor", "out of date or not whole", "made again")
    if app == "outdated":
        yield Change("app", "App", "yours", STATES[app])


def of_local_models(package: Path, plan: Plan) -> Iterator[Change]:
    """Yield the files of local models and of an adapter that are not as in the package.

    A model of the hub differs by its commit.
    """
    for each in plan.each_model:
        if not os.path.lexists(package / each.folder / MODEL_MANIFEST):
            continue
        before = {file.path: file.sha256 for file in manifest.read(package, each.folder).files}
        after = {}
        if each.model.folder is not None and not each.model.commit:
            after = {file.path: each.model.folder / file.path for file in each.model.files}
        if each.adapter is not None:
            after[ADAPTER] = each.adapter.folder / WEIGHTS
        for path, place in sorted(after.items()):
            was, is_now = before.get(path, "")[:12], on_disk(place)
            if was != is_now:
                yield Change("model", f"{each.folder}/{path}", was, is_now)


def models(old: Any, new: Any) -> Iterator[Change]:
    """Yield what differs in the models of two locks, and in the caches of the further ones."""
    before, after = (
        {each["folder"]: each for each in (record, *record["others"])} for record in (old, new)
    )
    for folder in sorted(before.keys() | after.keys()):
        was, is_now = before.get(folder), after.get(folder)
        if was is None or is_now is None:
            names = ("" if each is None else each["model"] for each in (was, is_now))
            yield Change("model", folder, *names)
            continue
        if (was["model"], was["commit"]) != (is_now["model"], is_now["commit"]):
            yield Change("model", is_now["model"], was["commit"][:12], is_now["commit"][:12])
        for name in OF_THE_CACHE if is_now is not new else ():
            if was[name] != is_now[name]:
                yield from settings(f"{folder}.{name}", was[name], is_now[name])


def settings(name: str, old: Any, new: Any) -> Iterator[Change]:
    """Yield what differs in a setting, or in each of a table of settings."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        yield Change("plan", name, json.dumps(old), json.dumps(new))
        return
    for key in sorted(old.keys() | new.keys()):
        if old.get(key) != new.get(key):
            before, after = json.dumps(old.get(key)), json.dumps(new.get(key))
            yield Change("plan", f"{name}.{key}", before, after)


def shown_pin(pin: Mapping[str, str]) -> str:
    """Write a pin's version and the begin of its commit."""
    return " ".join(filter(None, (pin.get("version", ""), pin.get("commit", "")[:12])))


def on_disk(place: Path) -> str:
    """Return the begin of a file's sha256, "" if there is none."""
    return digest_of(place)[:12] if place.is_file() else ""


def digest(content: Content | None) -> str:
    """Return the begin of the sha256 of a file's content, "" if there is none."""
    return "" if content is None else lock.sha256(as_bytes(content))[:12]


def print_changes(update: Update, console: Console, *, dry_run: bool) -> None:
    """Say what changes, files last."""
    for change in update.changes:
        console.print(str(change), markup=False)
    if not update.needed:
        console.print("nothing to change")
    elif dry_run:
        console.print("nothing was written: this was a dry run")


def print_update(made: PackageResult | None, console: Console) -> None:
    """Show what was made, if anything was."""
    if made is not None:
        print_made(made, {}, console)
