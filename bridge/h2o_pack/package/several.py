"""Several models in one package, of which an app takes the largest that fits its device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from h2o_pack.bundling.app_size import check_app_size
from h2o_pack.bundling.names import RESERVED, folded
from h2o_pack.errors import ExitCode, UserError
from h2o_pack.files.layout import MODEL_FOLDER
from h2o_pack.naming import model_display_name, package_name
from h2o_pack.package.request import PackageRequest
from h2o_pack.plan.package_plan import Plan


def refuse_with_several(request: PackageRequest) -> None:
    """Refuse options that are for one model where several are asked for."""
    if not request.others:
        return
    ways = {
        "--revision": (request.revision, "Write ID@REVISION as --model."),
        "--adapter": (request.adapter, "Merge it into a model with mlx_lm.fuse."),
        "--budgets": (request.cache.budgets, "Leave it out: all layers then have max-kv rows."),
        "--asset-pack": (request.asset_pack, "Make a package for each model, or leave it out."),
        "--download": (request.download, "Make a package for each model, or leave it out."),
    }
    for flag, (value, remedy) in ways.items():
        if value:
            raise UserError(
                f"{flag} is for a package with one model, and {len(request.models)} are given",
                remedy=remedy,
                code=ExitCode.USAGE,
            )


def together(plans: Sequence[Plan]) -> Plan:
    """Make one plan of those of several models: the largest one's, with the others in it.

    Raises:
        UserError: a model is there twice, or an app cannot hold them all.

    """
    if len(plans) == 1:
        return plans[0]
    refuse_twice(plans)
    ordered = sorted(plans, key=lambda plan: plan.model.weights.bytes, reverse=True)
    check_app_size(*(plan.model for plan in ordered), asset_pack=False)
    folders = folders_of([plan.model.id for plan in ordered])
    first, *others = (
        replace(plan, folder=folder) for plan, folder in zip(ordered, folders, strict=True)
    )
    return replace(first, others=tuple(others))


def refuse_twice(plans: Sequence[Plan]) -> None:
    """Refuse a model that is given twice."""
    given = []
    for plan in plans:
        model = plan.model
        place = (model.id, model.commit, model.folder)
        if place in given:
            raise UserError(
                f"{model.id} is given twice",
                remedy="Give each model once.",
                code=ExitCode.USAGE,
            )
        given.append(place)


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
