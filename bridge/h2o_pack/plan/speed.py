"""Estimates the speed of generation, and the cost of recall, from the bytes that they read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Annotated, Literal

from h2o_pack.devices.catalogue import Catalogue, Device
from h2o_pack.facts import FOLDER, known_models
from h2o_pack.files.toml import read_tables
from h2o_pack.memory import terms
from h2o_pack.memory.estimate import lasting_bytes
from h2o_pack.model import Model
from h2o_pack.plan.workload import Workload
from h2o_pack.results import Count, doc

PHONE = "iphone"  # backend of the devices for which a run of ten minutes is published


@dataclass(frozen=True)
class Speed:
    """Speed of generation with full caches."""

    tokens_per_second: Annotated[
        tuple[float, float], doc("Lowest and highest estimate, while the device is cool.")
    ]
    sustained: Annotated[
        float | None,
        doc(
            "Estimate after ten minutes without a pause; null for tablets, for which no such "
            "run is published."
        ),
    ]
    bytes_per_token: Annotated[
        Count, doc("Bytes of weights, caches and archives that a step reads from memory.")
    ]
    kind: Annotated[Literal["estimated"], doc("Always estimated.")] = "estimated"

    def __str__(self) -> str:
        low, high = (f"{value:.0f}" for value in self.tokens_per_second)
        return f"~{low}" if low == high else f"~{low}-{high}"


@dataclass(frozen=True)
class Rule:
    """A constant of the speed estimate."""

    name: str
    value: float
    what: str
    source: str
    kind: str


@dataclass(frozen=True)
class PublishedSpeed:
    """A published speed of generation with a model on a device."""

    model: Annotated[str, doc("Model of the catalogue.")]
    identifier: Annotated[str, doc("The device.")]
    tokens_per_second: Annotated[float, doc("Published speed.")]
    source: Annotated[str, doc("Source of the number.")]
    kind: Annotated[str, doc("How the number is known.")]


@dataclass(frozen=True)
class SpeedFile:
    """The content of speed.toml."""

    rule: tuple[Rule, ...]
    point: tuple[PublishedSpeed, ...]


@dataclass(frozen=True)
class Calibration(PublishedSpeed):
    """A published speed, compared with its estimate."""

    bytes: Annotated[Count, doc("Bytes of weights, which a step reads.")]
    predicted: Annotated[
        tuple[float, float],
        doc("Lowest and highest estimate of the rule, in tokens per second."),
    ]
    error: Annotated[
        float,
        doc(
            "Error of the nearer estimate as a share of the published speed; 0 if the "
            "published speed is between both estimates."
        ),
    ]


@cache
def rules() -> Mapping[str, float]:
    """Return the constants of facts/speed.toml by name."""
    return {rule.name: rule.value for rule in facts().rule}


@cache
def facts() -> SpeedFile:
    """Return the content of facts/speed.toml."""
    return read_tables(FOLDER / "speed.toml", SpeedFile)


def estimate(workload: Workload, device: Device) -> Speed | None:
    """Estimate the speed of generation with full caches and archives; None if it is unknown.

    Each generated token reads the sketch from memory, and the archived tokens that it attends
    to from memory or files.
    """
    weights = workload.model.weights.bytes_per_token
    memory, flash = lasting_bytes(workload, *terms.CACHES), 0
    recall = recall_plan(workload)
    if recall is not None and recall.reach:
        memory += recall.sketch_bytes
        if recall.archive == "files":
            flash = recall.token_read_bytes
        else:
            memory += recall.token_read_bytes
    speed = from_bytes(weights, memory, device.bandwidth, backend=device.backend)
    if speed is None:
        return None
    seconds = flash / rules()["flash_read"]

    def slowed(tokens_per_second: float) -> float:
        return round(1 / (1 / tokens_per_second + seconds), 1)

    low, high = map(slowed, speed.tokens_per_second)
    sustained = None if speed.sustained is None else slowed(speed.sustained)
    return replace(speed, tokens_per_second=(low, high), sustained=sustained)


def from_bytes(
    weights: int, caches: int, bandwidth: int | None, *, backend: str = PHONE
) -> Speed | None:
    """Estimate the speed from the bytes that one step reads.

    bandwidth: in bytes per second. Returns None if it is unknown, or if the model is too small
    for the rule. The estimate of a small model, or on an M chip, is a range that begins below
    the rule's value, because the rule is calibrated mostly with larger models on phones.
    """
    constants, bytes_per_token = rules(), weights + caches
    if bandwidth is None or weights < constants["least_bytes"]:
        return None
    rule = constants["efficiency"] * bandwidth / bytes_per_token
    small = weights < constants["small_bytes"]
    low = constants["small_low"] if small else 1.0
    if backend == PHONE:
        sustained = round(rule * low * constants["sustained"], 1)
    else:
        low, sustained = low * constants["efficiency_m"] / constants["efficiency"], None
    return Speed((round(rule * low, 1), round(rule, 1)), sustained, bytes_per_token)


def floor(speed: Speed) -> float:
    """Return the lowest estimate of tokens per second after ten minutes.

    A tablet, which has no estimate of its own, is assumed to slow down like a phone.
    """
    if speed.sustained is not None:
        return speed.sustained
    return round(speed.tokens_per_second[0] * rules()["sustained"], 1)


def calibration(devices: Catalogue) -> tuple[Calibration, ...]:
    """Return every published speed with the rule's estimate for it."""
    compared = []
    for point in facts().point:
        device = devices.find(point.identifier)[0]
        size = known_models()[point.model].read_per_token
        speed = from_bytes(size, 0, device.bandwidth, backend=device.backend)
        if speed is None:
            continue
        low, high = speed.tokens_per_second
        nearest = min(max(point.tokens_per_second, low), high)
        compared.append(
            Calibration(
                **vars(point),
                bytes=size,
                predicted=(low, high),
                error=round(nearest / point.tokens_per_second - 1, 4),
            )
        )
    return tuple(compared)


@dataclass(frozen=True)
class RecallPlan:
    """The cost of recall at the end of the longest conversation, in all layers that recall."""

    layers: Annotated[Count, doc("Number of layers that recall.")]
    reach: Annotated[
        Count, doc("Most archived tokens that a generated token reads per KV head.")
    ]
    archive_bits: Annotated[Count, doc("Bits of an archived key or value.")]
    archive: Annotated[Literal["memory", "files"], doc("Where the archives are kept.")]
    archive_tokens: Annotated[Count, doc("Number of newest tokens that every archive keeps.")]
    bytes_per_token: Annotated[Count, doc("Bytes of a token's archived keys and values.")]
    sketch_bytes_per_token: Annotated[
        Count, doc("Bytes of the sketch of a token's keys, by which tokens are chosen.")
    ]
    archive_bytes: Annotated[
        Count,
        doc(
            "Bytes of the archives, without the sketch. Files contain whole segments of 256 "
            "tokens, so with files the newest tokens, which are in memory, are not counted."
        ),
    ]
    sketch_bytes: Annotated[
        Count,
        doc(
            "Bytes of the sketch of all archived keys, which is in memory. Each generated "
            "token reads it, unless reach is 0."
        ),
    ]
    token_read_bytes: Annotated[
        Count,
        doc("Bytes of keys and values that a generated token reads from the archives."),
    ]
    prompt_read_bytes: Annotated[
        Count,
        doc(
            "Bytes of keys and values that a chunk of a prompt reads from the archives: all of "
            "them."
        ),
    ]
    prompt_tokens: Annotated[
        float,
        doc(
            "Number of prompt tokens that take as many multiply-adds as a chunk's reading of "
            "the archives."
        ),
    ]


@lru_cache(maxsize=64)
def recall_plan(workload: Workload) -> RecallPlan | None:
    """Compute the cost of recall; None if no layer recalls."""
    recalling, recall, tokens = workload.archives, workload.recall, workload.tokens
    if recall is None or not recalling:
        return None
    multiply_adds = sum(
        min(settings.ask, workload.step)
        * workload.config.heads
        * (archive.layer.key_dim + archive.layer.value_dim)
        * archive.tokens(tokens)
        for archive, _, settings in recalling
    )
    kept = [archive for archive, _, _ in recalling]
    in_files = workload.archive_in_files
    return RecallPlan(
        layers=len(recalling),
        reach=recall.reach,
        archive_bits=recall.archive_bits,
        archive="files" if in_files else "memory",
        archive_tokens=min(archive.tokens(tokens) for archive in kept),
        bytes_per_token=sum(archive.token_bytes for archive in kept),
        sketch_bytes_per_token=sum(archive.sketch_token_bytes for archive in kept),
        archive_bytes=sum(
            archive.packed(tokens) + (0 if in_files else archive.newest) for archive in kept
        ),
        sketch_bytes=sum(archive.sketch(tokens) for archive in kept),
        token_read_bytes=sum(
            min(settings.reach, archive.tokens(tokens)) * archive.token_bytes
            for archive, _, settings in recalling
        ),
        prompt_read_bytes=sum(archive.tokens(tokens) * archive.token_bytes for archive in kept),
        prompt_tokens=round(multiply_adds / parameters(workload.model), 1),
    )


def parameters(model: Model) -> float:
    """Return the number of weights that a token is multiplied with, from their bytes."""
    config = model.config
    if not (config.bits and config.group_size):
        return model.weights.bytes_per_token / config.element_bytes
    bits = config.bits + 16 * config.element_bytes / config.group_size
    return model.weights.bytes_per_token * 8 / bits
