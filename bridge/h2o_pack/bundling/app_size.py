"""Apple's limits of size: for an app with its model in it, and for what Apple hosts."""

from __future__ import annotations

from h2o_pack.architectures.model import Model
from h2o_pack.bundling.space import shown
from h2o_pack.errors import ExitCode, UserError
from h2o_pack.facts import store_limits


def check_app_size(*models: Model, asset_pack: bool, download: bool = False) -> None:
    """Refuse models that together are too large for the way in which they reach the device.

    asset_pack: they come apart from the app, see Background Assets. download: the app fetches
    them from a server, which has no limit of Apple's.
    """
    if download:
        return
    limit = store_limits()["asset-packs" if asset_pack else "app"]
    size = sum(model.size for model in models)
    if size <= limit.bytes:
        return
    names = " and ".join(model.id for model in models)
    have = "has" if len(models) == 1 else "together have"
    another = (
        ""
        if asset_pack or len(models) > 1
        else "Give --asset-pack or --download, so that it comes apart from the app, or "
    )
    remedy = "choose a smaller model or fewer bits."
    raise UserError(
        f"{names} {have} {shown(size)}, more than {limit.what}",
        where=limit.source,
        remedy=f"{another}{remedy}" if another else remedy.capitalize(),
        code=ExitCode.USAGE,
    )
