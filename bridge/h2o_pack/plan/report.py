"""A plan beside the devices: who can hold it, how fast, and what else would fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from h2o_pack.devices.facts import BANDWIDTH, DEFAULT, ENTITLED
from h2o_pack.plan.advice import advice
from h2o_pack.plan.remedies import remedies
from h2o_pack.plan.request import known_fitting
from h2o_pack.plan.speed import Compared, Speed, calibration, estimate, rules
from h2o_pack.plan.verdict import Verdict, verdicts

if TYPE_CHECKING:
    from h2o_pack.devices.listed import Catalogue, Listed
    from h2o_pack.facts import KnownModel
    from h2o_pack.memory.terms import MemoryPlan
    from h2o_pack.plan.request import Request

FORMAT = 1


@dataclass(frozen=True)
class Room:
    """What fits into a limit: rows a layer, tokens without a bound, a catalogue's model.

    All are 0 or "" where nothing fits or the limit is unknown.
    """

    max_kv: int = 0
    context: int = 0
    model: str = ""


@dataclass(frozen=True)
class Row:
    """A plan on one device; entitled: with both memory entitlements."""

    device: Listed
    plan: MemoryPlan
    default: Verdict
    entitled: Verdict
    speed: Speed | None
    room: Room
    remedies: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """Plain values for JSON."""
        numbers = (self.device.number(what) for what in (DEFAULT, ENTITLED, BANDWIDTH))
        return {
            "identifier": self.device.identifier,
            "name": self.device.title,
            "chip": self.device.chip,
            "backend": self.device.backend,
            "needed": self.plan.total,
            "default": self.default.document(),
            "entitled": self.entitled.document(),
            "speed": None if self.speed is None else self.speed.document(),
            "largest": vars(self.room),
            "remedies": list(self.remedies),
            "sources": [vars(number) for number in numbers if number is not None],
        }


@dataclass(frozen=True)
class Report:
    """All that `h2o-pack plan` shows."""

    request: Request
    plans: tuple[MemoryPlan, ...]
    rows: tuple[Row, ...]
    advice: tuple[str, ...]
    calibration: tuple[Compared, ...]

    @property
    def settings(self) -> dict[str, Any]:
        """What was planned for."""
        model, plan = self.request.model, self.plans[0]
        return {
            "model": model.id,
            "commit": model.commit,
            "model_type": model.config.model_type,
            "layers": len(model.config.layers),
            "evicting_layers": sum(each is not None for each in self.request.caches),
            "max_kv": self.request.max_kv or None,
            "kv": plan.storage,
            "context": plan.context,
            "prefill_step": plan.step,
        }

    def document(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "format": FORMAT,
            **self.settings,
            "plans": [plan.document() for plan in self.plans],
            "devices": [row.document() for row in self.rows],
            "advice": list(self.advice),
            "speed_rule": dict(rules()),
            "calibration": [
                {
                    **vars(each.point),
                    "predicted": round(each.predicted, 1),
                    "error": round(each.error, 4),
                }
                for each in self.calibration
            ],
        }


def make_report(
    request: Request,
    devices: tuple[Listed, ...],
    known: Catalogue,
    models: tuple[KnownModel, ...],
) -> Report:
    """Plan on every backend that the devices have, and hold each device against it."""
    backends = tuple(dict.fromkeys(device.backend for device in devices)) or ("iphone",)
    plans = tuple(request.plan(backend) for backend in backends)
    return Report(
        request=request,
        plans=plans,
        rows=tuple(row_of(request, device, models) for device in devices),
        advice=advice(request.model, plans[0]),
        calibration=calibration(known),
    )


def row_of(request: Request, device: Listed, models: tuple[KnownModel, ...]) -> Row:
    """Hold one device against the plan."""
    plan = request.plan(device.backend)
    default, entitled = verdicts(plan, device)
    over = entitled.fit == "does not fit" and entitled.limit is not None
    return Row(
        device=device,
        plan=plan,
        default=default,
        entitled=entitled,
        speed=estimate(request.model, plan, device),
        room=room_of(request, entitled.limit, device.backend, models),
        remedies=tuple(remedies(request, models, entitled.limit or 0, device.backend))
        if over
        else (),
    )


def room_of(
    request: Request, limit: int | None, backend: str, models: tuple[KnownModel, ...]
) -> Room:
    """What fits at most into a limit."""
    if limit is None:
        return Room()
    known = known_fitting(request, models, limit, backend)
    return Room(
        request.largest_max_kv(limit, backend),
        request.largest_context(limit, backend),
        known.name if known is not None else "",
    )


def some_of_each(devices: tuple[Listed, ...]) -> tuple[Listed, ...]:
    """One device for each chip and memory: the others of its kind have the same numbers."""
    first: dict[Any, Listed] = {}
    for device in devices:
        amounts = tuple(device.amount(what) for what in (DEFAULT, ENTITLED, BANDWIDTH))
        first.setdefault((device.chip, amounts), device)
    return tuple(first.values())
