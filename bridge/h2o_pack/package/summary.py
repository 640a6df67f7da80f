"""What `ios` and `vendor` did, for people and for machines."""

# ruff: noqa: PLC0415 - imports inside functions keep `h2o-pack --help` quick

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from h2o_pack.results import error_entries
from h2o_py.storages import STORAGE_BITS

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from h2o_pack.files.lock import Vendored
    from h2o_pack.package.build import Made
    from h2o_pack.plan.package_plan import Plan

FORMAT = 1


def made_document(made: Made) -> dict[str, Any]:
    """Return what was made, for JSON."""
    plan = made.plan
    failed = made.not_vendored
    return {
        "format": FORMAT,
        "package": str(made.folder),
        "written": made.verification is not None,
        "name": plan.package_name,
        "module": f"{plan.module_name}Model",
        "model": plan.model.id,
        "commit": plan.model.commit,
        "config": plan.cache.to_dict(),
        "kv": plan.storage,
        "group_size": plan.group_size,
        "asset_pack": plan.asset_pack,
        "memory": plan.memory,
        "files": list(made.files),
        "model_files": [{"path": each.path, "size": each.size} for each in plan.model.files],
        "model_bytes": model_bytes(plan),
        "vendor": made.vendored and vendored_document(made.folder, made.vendored),
        "errors": list(error_entries([failed])) if failed else [],
        "warnings": list(plan.warnings),
    }


def model_bytes(plan: Plan) -> int:
    """Bytes of the model's files."""
    return sum(each.size for each in plan.model.files)


def print_made(made: Made, console: Console) -> None:
    """Show what was made, or would be, and what can be done with it."""
    from rich.markup import escape
    from rich.table import Table

    plan = made.plan
    config, cache = plan.model.config, plan.cache
    table = Table(title=escape(str(made.folder)), title_justify="left", show_header=False)
    table.add_row(
        "model",
        escape(
            f"{plan.model.id} ({config.model_type}, {len(config.layers)} layers, "
            f"{config.kv_heads} KV heads of {config.head_dim})"
        ),
    )
    sizes = {each.max_size for each in plan.caches if each} or {cache.max_size}
    own = f", {min(sizes)} to {max(sizes)} by layer" if len(sizes) > 1 else ""
    stored = STORAGE_BITS[plan.storage].meaning
    table.add_row(
        "cache",
        f"{cache.max_size} tokens per layer{own}: {cache.sink_size} first, "
        f"{cache.heavy_budget} heavy, {cache.recent_budget} recent; {stored}",
    )
    table.add_row(
        "memory",
        f"{plan.memory.total / 1e6:,.0f} MB: weights {plan.memory.weights / 1e6:,.0f}, "
        f"caches {plan.memory.caches / 1e6:,.1f}; `h2o-pack plan` has each term",
    )
    table.add_row("module", f"{plan.module_name}Model, with H2OKit")
    table.add_row(
        "files",
        f"{len(made.files)} generated, {len(plan.model.files)} of the model "
        f"({model_bytes(plan) / 1e6:,.1f} MB)",
    )
    console.print(table)
    for warning in plan.warnings:
        console.print(f"note: {warning}", markup=False)
    if made.verification is None:
        console.print("nothing was written: this was a dry run")
        return
    for each in made.verification.differences:
        console.print(f"differs: {each}", markup=False)
    steps = f"h2o-pack parity {made.folder}; open {made.folder}/App/Chat.xcodeproj"
    if made.vendored is None:
        steps = f"h2o-pack vendor {made.folder}; {steps}"
    console.print(f"next: {steps}", markup=False)


def vendored_document(package: Path, vendored: Vendored) -> dict[str, Any]:
    """Return what was vendored, for JSON."""
    return {
        "format": FORMAT,
        "package": str(package),
        "host": vendored.host,
        "commits": vendored.commits,
        "edited": [vars(each) for each in vendored.files],
    }


def print_vendored(package: Path, vendored: Vendored, console: Console) -> None:
    """Show what was vendored."""
    console.print(f"{package / 'Vendor'} is made for the host {vendored.host}", markup=False)
    for file in vendored.files:
        console.print(f"  edited: {file.path}", markup=False)
