"""How fast tokens may be generated: an estimate from the bytes that a step reads."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from h2o_pack.devices.facts import BANDWIDTH, Point, Rule
from h2o_pack.facts import FOLDER, read_table
from h2o_pack.memory.formulas import tokens_per_second

if TYPE_CHECKING:
    from collections.abc import Mapping

    from h2o_pack.architectures.model import Model
    from h2o_pack.devices.listed import Catalogue, Listed
    from h2o_pack.memory.terms import MemoryPlan


@dataclass(frozen=True)
class Speed:
    """Tokens a second: first when the device is cool; low and high where it is a range.

    sustained: after ten minutes without a pause. bytes_per_token: weights, keys and values
    that a step reads with full caches.
    """

    low: float
    high: float
    sustained: float
    bytes_per_token: int

    def document(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "tokens_per_second": [round(self.low, 1), round(self.high, 1)],
            "sustained": round(self.sustained, 1),
            "bytes_per_token": self.bytes_per_token,
            "kind": "estimated",
        }

    def __str__(self) -> str:
        low, high = f"{self.low:.0f}", f"{self.high:.0f}"
        return f"~{low}" if low == high else f"~{low}-{high}"


@dataclass(frozen=True)
class Compared:
    """A published speed beside the rule's."""

    point: Point
    predicted: float

    @property
    def error(self) -> float:
        """Of the prediction, as a part of the published speed."""
        return self.predicted / self.point.tokens_per_second - 1


@cache
def rules() -> Mapping[str, float]:
    """The constants of facts/speed.toml by name."""
    return {each.name: each.value for each in read_table(FOLDER / "speed.toml", "rule", Rule)}


def estimate(model: Model, plan: MemoryPlan, device: Listed) -> Speed | None:
    """The speed on a device; None where that cannot be said.

    Its bandwidth may be unknown, or the model so small that fixed costs rule.

    A step reads the weights of one token and the caches as far as they are filled: all
    rows here, so a short conversation is faster.
    """
    return from_bytes(model.weights.bytes_per_token, plan.caches, device.amount(BANDWIDTH))


def from_bytes(weights: int, caches: int, bandwidth: int | None) -> Speed | None:
    """The speed for so many bytes a step; small models have a range below the rule."""
    known, bytes_per_token = rules(), weights + caches
    if bandwidth is None or weights < known["least_bytes"]:
        return None
    rule = tokens_per_second(bandwidth, bytes_per_token, known["efficiency"])
    small = weights < known["small_bytes"]
    low, high = (known["small_low"], known["small_high"]) if small else (1.0, 1.0)
    return Speed(rule * low, rule * high, rule * low * known["sustained"], bytes_per_token)


def calibration(devices: Catalogue) -> tuple[Compared, ...]:
    """Every published speed beside what the rule says of it."""
    points = read_table(FOLDER / "speed.toml", "point", Point)
    compared = []
    for point in points:
        bandwidth = devices.find(point.identifier)[0].amount(BANDWIDTH) or 0
        predicted = tokens_per_second(bandwidth, point.bytes, rules()["efficiency"])
        compared.append(Compared(point, predicted))
    return tuple(compared)
