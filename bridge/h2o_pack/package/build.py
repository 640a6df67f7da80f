"""What `ios` does: resolve, plan, generate, bundle, vendor, verify.

Each step ends whole: a run that is stopped leaves the earlier package or the new one, and
the next run goes on from what it finds.
"""

# ruff: noqa: PLC0415 - imports inside functions keep `h2o-pack --help` quick

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from h2o_pack.errors import ExitCode, Problems, UserError
from h2o_pack.files import lock
from h2o_pack.plan.package_plan import Plan, choose, make_plan

if TYPE_CHECKING:
    from h2o_pack.files.lock import Vendored
    from h2o_pack.plan.options import CacheOptions
    from h2o_pack.progress import Say
    from h2o_pack.vendoring.fetch import Origin
    from h2o_pack.verify.differences import Verification

HOST = "apple"


@dataclass(frozen=True)
class Order:
    """A package as asked for.

    output: its folder, by default one of the package's name. upstream: where Vendor/ comes
    from, None to leave it out. asset_pack: the model comes to the device apart from the app.
    """

    model: str
    cache: CacheOptions
    revision: str = ""
    assume_full_attention: bool = False
    name: str | None = None
    output: Path | None = None
    upstream: Origin | None = None
    asset_pack: bool = False


@dataclass(frozen=True)
class Made:
    """What became of an order.

    files: those generated, relative to `folder`. vendored: None where that was not asked
    for, or failed as `not_vendored` says. verification: None for a dry run.
    """

    plan: Plan
    folder: Path
    files: tuple[str, ...]
    vendored: Vendored | None = None
    not_vendored: UserError | None = None
    verification: Verification | None = None


def prepare(order: Order, say: Say) -> Plan:
    """Find the model and plan the package; nothing is written.

    Raises:
        UserError: all that is wrong with the order, together.

    """
    from h2o_pack.hub.resolve import resolve

    problems = Problems()
    with problems.caught():
        chosen = choose(order.cache)
    with problems.caught():
        say(f"reading the headers of {order.model}")
        model = resolve(
            order.model,
            revision=order.revision,
            assume_full_attention=order.assume_full_attention,
        )
    problems.refuse()
    return make_plan(model, order.cache, order.name, asset_pack=order.asset_pack, chosen=chosen)


def rehearse(plan: Plan, order: Order) -> Made:
    """Render the package without writing it."""
    from h2o_pack.package.contents import rendered

    output = order.output or Path(plan.package_name)
    return Made(plan, output.resolve(), tuple(rendered(plan, output)))


def carry_out(plan: Plan, order: Order, say: Say) -> Made:
    """Write the package, bundle the model, fill Vendor/ and check all of it.

    Upstream that cannot be had leaves a package that is whole but for Vendor/.
    """
    from h2o_pack.package.contents import make_package
    from h2o_pack.verify.check import verify

    output = order.output or Path(plan.package_name)
    say(f"writing {plan.package_name}")
    package = make_package(plan, output, say)
    vendored, not_vendored = None, None
    if order.upstream is not None:
        try:
            vendored = fill_vendor(package.folder, order.upstream, say)
        except UserError as error:
            if error.code not in (ExitCode.NETWORK, ExitCode.TOOL):
                raise
            not_vendored = error
    say("checking what was written")
    checked = verify(package.folder, quick=True, say=say)
    return Made(plan, package.folder, package.files, vendored, not_vendored, checked)


def fill_vendor(package: Path, upstream: Origin, say: Say) -> Vendored:
    """Make Vendor/, unless the one that is there was made so already."""
    from h2o_pack.vendoring.vendor import current, vendor

    kept = lock.read(package).vendor
    if kept is not None and current(kept):
        say("Vendor is as it should be")
        return kept
    return vendor(package, upstream, kept.host if kept else HOST, say)
