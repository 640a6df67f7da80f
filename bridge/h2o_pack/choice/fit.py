"""How a cache fits on several devices at once."""

from __future__ import annotations

from dataclasses import dataclass

from h2o_pack.devices.device import Device
from h2o_pack.errors import ExitCode, UserError
from h2o_pack.plan.recall import recall_plan, with_recalls
from h2o_pack.plan.request import Request
from h2o_pack.plan.speed import estimate, floor
from h2o_pack.plan.verdict import TIGHT
from h2o_pack.sizes import gigabytes


@dataclass(frozen=True)
class Fit:
    """A plan on some devices.

    device: the one that it leaves least on, with the bytes needed there and the part of the
    limit that is left. slowest, sustained: tokens per second after ten minutes, None where
    the speed on one of the devices is not known.
    """

    device: Device
    needed: int
    headroom_share: float
    slowest: Device
    sustained: float | None

    @property
    def has_room(self) -> bool:
        """Whether the margin stays free on every device."""
        return self.headroom_share >= TIGHT

    def is_fast(self, floor: float) -> bool:
        """Whether no device is slower than the floor."""
        return not floor or (self.sustained is not None and self.sustained >= floor)


def fit(request: Request, devices: tuple[Device, ...]) -> Fit:
    """Hold a plan against the limits of devices, all of which are known."""
    shares = {each: share_left(request, each) for each in devices}
    speeds = {each: sustained(request, each) for each in devices}
    tightest = min(devices, key=lambda each: shares[each])
    slowest = min(devices, key=lambda each: speeds[each] or 0.0)
    return Fit(
        device=tightest,
        needed=request.on(tightest).plan(tightest.backend).total,
        headroom_share=round(shares[tightest], 4),
        slowest=slowest,
        sustained=speeds[slowest],
    )


def share_left(request: Request, device: Device) -> float:
    """Return the part of a device's limit that a plan leaves; negative if it is over it."""
    limit = limit_of(device)
    return (limit - request.on(device).plan(device.backend).total) / limit


def sustained(request: Request, device: Device) -> float | None:
    """Return tokens per second after ten minutes, at least; None where nobody knows."""
    speed = estimate(request.model, request.plan(device.backend), device)
    speed = with_recalls(speed, recall_plan(request), device)
    return None if speed is None else floor(speed)


def limit_of(device: Device) -> int:
    """Return what an app may use with both memory entitlements.

    Raises:
        UserError: nobody has said how much that is.

    """
    if device.limit_entitled is not None:
        return device.limit_entitled
    raise UserError(
        f"nobody knows how much memory an app may use on {device.title}",
        where=device.identifier,
        remedy="State it in a file of your own (--devices FILE): "
        '{ of = "' + device.identifier + '", what = "entitled", ... }.',
        code=ExitCode.USAGE,
    )


def room_on(device: Device) -> str:
    """Say how much of a device's limit a plan may take."""
    return f"may take {gigabytes((1 - TIGHT) * limit_of(device))} GB on {device.title}"
