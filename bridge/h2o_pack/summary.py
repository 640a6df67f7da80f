"""What `ios` and `vendor` did, for people and for machines."""

# ruff: noqa: PLC0415 - imports inside functions keep `h2o-pack --help` quick

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from h2o_pack.lock import Vendored
    from h2o_pack.package import Package
    from h2o_pack.plan import Plan

FORMAT = 1


def package_document(plan: Plan, package: Package) -> dict[str, Any]:
    """Return what was made, for JSON."""
    return {
        "format": FORMAT,
        "package": str(package.folder),
        "name": plan.package_name,
        "module": f"{plan.module_name}Model",
        "model": plan.model.id,
        "config": plan.cache.to_dict(),
        "files": list(package.files),
        "model_bytes": package.manifest.size,
        "warnings": list(plan.warnings),
    }


def print_package(plan: Plan, package: Package, console: Console) -> None:
    """Show what was made and what can be done with it."""
    from rich.table import Table

    config, cache = plan.model.config, plan.cache
    table = Table(title=f"{package.folder}", title_justify="left", show_header=False)
    table.add_row(
        "model",
        f"{plan.model.id} ({config.model_type}, {config.layers} layers, "
        f"{config.kv_heads} KV heads of {config.head_dim})",
    )
    table.add_row(
        "cache",
        f"{cache.max_size} tokens a layer: {cache.sink_size} first, "
        f"{cache.heavy_budget} heavy, {cache.recent_budget} recent",
    )
    table.add_row("module", f"{plan.module_name}Model, with H2OKit")
    table.add_row(
        "files",
        f"{len(package.files)} generated, {len(package.manifest.files)} of the model "
        f"({package.manifest.size / 1e6:.1f} MB)",
    )
    console.print(table)
    for warning in plan.warnings:
        console.print(f"note: {warning}", markup=False)
    console.print(f"next: h2o-pack parity {package.folder}", markup=False)


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
