"""Apple's limits of size: for an app with its model in it, and for what Apple hosts."""

from __future__ import annotations

from h2o_pack.architectures.model import Model
from h2o_pack.bundling.space import shown
from h2o_pack.errors import ExitCode, UserError
from h2o_pack.facts import store_limits


def check_app_size(model: Model, *, asset_pack: bool) -> None:
    """Refuse a model that is too large for the way in which it should reach the device.

    asset_pack: it comes apart from the app, see Background Assets.
    """
    limit = store_limits()["asset-packs" if asset_pack else "app"]
    if model.size <= limit.bytes:
        return
    another = (
        "" if asset_pack else "Give --asset-pack, so that it comes apart from the app, or "
    )
    remedy = "choose a smaller model or fewer bits."
    raise UserError(
        f"{model.id} has {shown(model.size)}, more than {limit.what}",
        where=limit.source,
        remedy=f"{another}{remedy}" if another else remedy.capitalize(),
        code=ExitCode.USAGE,
    )
