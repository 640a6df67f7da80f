"""Several models in one package, of which an app takes the largest that fits its device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from h2o_pack.bundling.app_size import check_app_size
from h2o_pack.bundling.names import RESERVED, folded
from h2o_pack.files.layout import MODEL_FOLDER
from h2o_pack.naming import model_display_name, package_name
from h2o_pack.package.request import PackageRequest
from h2o_pack.plan.package_plan import Plan
from h2o_pack.plan.several import ALL_ALIKE, WITH_REVISION, refuse_options, refuse_twice


def refuse_with_several(request: PackageRequest) -> None:
    """Refuse options that are for one model where several are asked for."""
    if not request.others:
        return
    ways: dict[str, tuple[object, str]] = {
        "--revision": (request.revision, WITH_REVISION),
        "--adapter": (request.adapter, "Merge it into a model with mlx_lm.fuse."),
        "--budgets": (request.cache.budgets, ALL_ALIKE),
        "--asset-pack": (request.asset_pack, "Make a package for each model, or leave it out."),
        "--download": (request.download, "Make a package for each model, or leave it out."),
    }
    refuse_options(len(request.models), ways)


def together(plans: Sequence[Plan]) -> Plan:
    """Make one plan of those of several models: the largest one's, with the others in it.

    Raises:
        UserError: a model is there twice, or an app cannot hold them all.

    """
    refuse_twice([plan.model for plan in plans])
    ordered = sorted(plans, key=lambda plan: plan.model.weights.bytes, reverse=True)
    check_app_size(
        [plan.model.id for plan in ordered],
        sum(plan.size for plan in ordered),
        asset_pack=ordered[0].asset_pack,
        download=bool(ordered[0].download),
    )
    if len(ordered) == 1:
        return ordered[0]
    folders = folders_of([plan.model.id for plan in ordered])
    first, *others = (
        replace(plan, folder=folder) for plan, folder in zip(ordered, folders, strict=True)
    )
    return replace(first, others=tuple(others))


def folders_of(models: Sequence[str]) -> list[str]:
    """Return a folder in the package for each model, whose names Apple's disks keep apart."""
    taken = {folded(RESERVED)}
    folders = []
    for model in models:
        wanted = name = package_name(model_display_name(model))
        number = 1
        while folded(name) in taken:
            number += 1
            name = f"{wanted}-{number}"
        taken.add(folded(name))
        folders.append(f"{MODEL_FOLDER}/{name}")
    return folders
