"""What `ios`, `update` and `vendor` did, for people."""

from __future__ import annotations

import shlex
from collections import Counter
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

from h2o_pack.bundling.manifest import Manifest
from h2o_pack.choice.tables import print_choice
from h2o_pack.files.layout import SYSTEM_PROMPT
from h2o_pack.files.lock import Vendored
from h2o_pack.package.app import STATES
from h2o_pack.package.build import PackageResult
from h2o_pack.package.summary import Choices, StatedLicense
from h2o_pack.plan.package_plan import Plan
from h2o_pack.plan.tables import size_sentence
from h2o_py.storages import STORAGE_BITS

if TYPE_CHECKING:
    from rich.console import Console


def print_made(made: PackageResult, choices: Choices, console: Console) -> None:
    """Show what was chosen, what was made or would be, and what can be done with it.

    A package without the Vendor/ that was asked for is no success.
    """
    if made.not_vendored is not None:
        console.print(
            f"{made.folder} is whole but for Vendor: run the same command again", markup=False
        )
        return
    for choice in choices.values():
        print_choice(choice, console)
    print_package(made, console)
    for path in made.replaced:
        console.print(
            f"note: you had changed {path}, which is written anew; yours is in Replaced",
            markup=False,
            soft_wrap=False,
        )
    for note in notes(made.plan):
        console.print(f"note: {note}", markup=False, soft_wrap=False)
    if made.verification is None:
        console.print("nothing was written: this was a dry run")
        return
    for each in made.verification.differences:
        console.print(f"differs: {each}", markup=False, soft_wrap=False)
    folder = shlex.quote(str(made.folder))
    project = shlex.quote(f"{made.folder}/App/Chat.xcodeproj")
    steps = f"h2o-pack parity {folder}; open {project}"
    if made.vendored is None:
        steps = f"h2o-pack vendor {folder}; {steps}"
    console.print(f"next: {steps}", markup=False)
    if made.plan.download:
        console.print(
            f"and upload the files in {folder}/Model, so that the app finds them below "
            f"{made.plan.download}",
            markup=False,
        )


def notes(plan: Plan) -> list[str]:
    """Return what works but may serve badly: of all models, then of some by name."""
    each_has = [each.warnings for each in plan.each_model]
    common = [note for note in plan.warnings if all(note in notes for notes in each_has)]
    return common + [
        f"{each.model.id}: {note}"
        for each in plan.each_model
        for note in each.warnings
        if note not in common
    ]


def print_package(made: PackageResult, console: Console) -> None:
    """Show the models, side by side where there are several, and the package."""
    from rich.markup import escape
    from rich.table import Table

    plan = made.plan
    table = Table(title=escape(str(made.folder)), title_justify="left", show_header=False)
    models = [
        model_rows(each, manifest)
        for each, manifest in zip_longest(plan.each_model, made.manifests)
    ]
    labels = dict.fromkeys(label for rows in models for label in rows)
    for label in labels:
        table.add_row(label, *(escape(rows.get(label, "-")) for rows in models))
    if plan.others:
        console.print(table)
        table = Table(show_header=False)
    table.add_row("module", f"{plan.module_name}Model, with H2OKit")
    table.add_row(
        "files",
        f"{len(made.files)} generated, {sum(len(each.model.files) for each in plan.each_model)}"
        f" of the model{'s' if plan.others else ''}",
    )
    table.add_row("size", size_sentence(made.size))
    table.add_row("app", escape(f"{plan.display_name} ({plan.bundle_id}): {STATES[made.app]}"))
    console.print(table)


def model_rows(plan: Plan, manifest: Manifest | None) -> dict[str, str]:
    """Return what people are shown of a model, by what it is.

    manifest: of the model's folder, None where it is not written yet.
    """
    config, cache, memory = plan.model.config, plan.cache, plan.memory
    sizes = {each.max_size for each in plan.caches if each} or {cache.max_size}
    own = f", {min(sizes)} to {max(sizes)} by layer" if len(sizes) > 1 else ""
    archived = f", archive {memory.archive / 1e6:,.1f}" if memory.archive else ""
    rows = {
        "model": f"{plan.model.id} ({config.model_type}, {len(config.layers)} layers, "
        f"{config.kv_heads} KV heads of {config.head_dim})",
        "cache": f"{cache.max_size} tokens per layer{own}: {cache.sink_size} first, "
        f"{cache.heavy_budget} heavy, {cache.recent_budget} recent; "
        f"{STORAGE_BITS[plan.storage].meaning}",
    }
    if cache.recall is not None:
        every = cache.recall.every
        when = f" at prompts and every {every} tokens" if every else ""
        recalling = sum(1 for each in plan.caches if each and each.recall_rows)
        rows["recall"] = (
            f"up to {cache.recall_rows} rows{when}, {recalling} layers, archive in "
            f"{plan.archive} in {cache.recall.archive_bits} bits"
        )
    rows["memory"] = (
        f"{memory.total / 1e6:,.0f} MB: weights {memory.weights / 1e6:,.0f}, "
        f"caches {memory.caches / 1e6:,.1f}{archived}; `h2o-pack plan` has each term"
    )
    stated = StatedLicense.of(plan.license)
    rows["license"] = str(stated) if stated else "none found"
    if plan.adapter is not None:
        rows["adapter"] = (
            f"{plan.adapter.type} of rank {plan.adapter.rank} in the last "
            f"{plan.adapter.layers} layers, {plan.adapter.bytes / 1e6:,.1f} MB"
        )
    if plan.system:
        prompt = manifest.system_prompt if manifest else None
        count = f"{prompt.tokens} tokens" if prompt else "read when the package is written"
        rows["system"] = f"{count}; its caches are in {plan.folder}/{SYSTEM_PROMPT}"
    return rows


def print_vendored(package: Path, vendored: Vendored, console: Console) -> None:
    """Show what was vendored."""
    console.print(f"{package / 'Vendor'} is made for the host {vendored.host}", markup=False)
    edited = Counter(file.path.partition("/")[0] for file in vendored.files)
    for name, count in edited.items():
        console.print(f"  edited files of {name}: {count}", markup=False)
