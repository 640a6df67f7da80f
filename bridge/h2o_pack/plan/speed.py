"""How fast tokens may be generated: an estimate from the bytes that a step reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Literal

from h2o_pack.architectures.model import Model
from h2o_pack.devices.device import Catalogue, Device
from h2o_pack.devices.facts import PublishedSpeed, SpeedFile
from h2o_pack.facts import FOLDER, known_models
from h2o_pack.files.toml import read_tables
from h2o_pack.memory.formulas import tokens_per_second
from h2o_pack.memory.terms import MemoryPlan
from h2o_pack.results import Count, doc

PHONE = "iphone"  # the backend of the devices whose run of ten minutes is published


@dataclass(frozen=True)
class Speed:
    """Speed of generation with full caches."""

    tokens_per_second: Annotated[
        tuple[float, float], doc("From and to, as long as the device is cool.")
    ]
    sustained: Annotated[
        float | None,
        doc("After ten minutes without a pause; null for tablets: no such run is known."),
    ]
    bytes_per_token: Annotated[Count, doc("Weights, keys and values that a step reads.")]
    kind: Annotated[Literal["estimated"], doc("Always.")] = "estimated"

    def __str__(self) -> str:
        low, high = (f"{each:.0f}" for each in self.tokens_per_second)
        return f"~{low}" if low == high else f"~{low}-{high}"


@dataclass(frozen=True)
class Calibration(PublishedSpeed):
    """A published speed beside the estimate."""

    bytes: Annotated[Count, doc("Bytes of weights, which a step reads.")]
    predicted: Annotated[
        tuple[float, float], doc("From and to, tokens per second by the rule.")
    ]
    error: Annotated[
        float,
        doc("Of the nearer end, as a part of the published speed; 0 between the ends."),
    ]


@cache
def rules() -> Mapping[str, float]:
    """The constants of facts/speed.toml by name."""
    return {each.name: each.value for each in facts().rule}


@cache
def facts() -> SpeedFile:
    """Everything that facts/speed.toml says."""
    return read_tables(FOLDER / "speed.toml", SpeedFile)


def estimate(model: Model, plan: MemoryPlan, device: Device) -> Speed | None:
    """The speed on a device; None where that cannot be said.

    Its bandwidth may be unknown, or the model so small that fixed costs rule.

    A step reads the weights of one token and the caches as far as they are filled: all
    rows here, so a short conversation is faster.
    """
    weights = model.weights.bytes_per_token
    return from_bytes(weights, plan.caches, device.bandwidth, backend=device.backend)


def from_bytes(
    weights: int, caches: int, bandwidth: int | None, *, backend: str = PHONE
) -> Speed | None:
    """The speed for so many bytes per step.

    Small models have a range below the rule, and so has all on M chips: nearly all speeds
    that it was made from are a phone's.
    """
    known, bytes_per_token = rules(), weights + caches
    if bandwidth is None or weights < known["least_bytes"]:
        return None
    rule = tokens_per_second(bandwidth, bytes_per_token, known["efficiency"])
    small = weights < known["small_bytes"]
    low = known["small_low"] if small else 1.0
    if backend == PHONE:
        lasting = round(rule * low * known["sustained"], 1)
    else:
        low, lasting = low * known["efficiency_m"] / known["efficiency"], None
    return Speed((round(rule * low, 1), round(rule, 1)), lasting, bytes_per_token)


def floor(speed: Speed) -> float:
    """Tokens per second that are left after ten minutes at least.

    No tablet's run of ten minutes is published; it has more to cool with than a phone.
    """
    if speed.sustained is not None:
        return speed.sustained
    return round(speed.tokens_per_second[0] * rules()["sustained"], 1)


def calibration(devices: Catalogue) -> tuple[Calibration, ...]:
    """Every published speed beside what the rule says of it."""
    compared = []
    for point in facts().point:
        device = devices.find(point.identifier)[0]
        read = known_models()[point.model].read_per_token
        speed = from_bytes(read, 0, device.bandwidth, backend=device.backend)
        if speed is None:
            continue
        low, high = speed.tokens_per_second
        nearest = min(max(point.tokens_per_second, low), high)
        compared.append(
            Calibration(
                **vars(point),
                bytes=read,
                predicted=(low, high),
                error=round(nearest / point.tokens_per_second - 1, 4),
            )
        )
    return tuple(compared)
