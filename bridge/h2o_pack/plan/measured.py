"""Compares what a device measured with the plan: the document of the app's measuring screen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from h2o_pack.devices.catalogue import Catalogue, Device
from h2o_pack.errors import UserError, usage_error
from h2o_pack.files.text import read_json
from h2o_pack.measure.bench_result import BenchResult, CacheSpeed
from h2o_pack.memory import terms
from h2o_pack.naming import model_display_name
from h2o_pack.plan.speed import estimate
from h2o_pack.plan.workload import Workload
from h2o_pack.results import Count, doc

REMEDY = "Give the file that the app's measuring screen, or `h2o-pack bench --json`, wrote."
BYTES: Literal["bytes"] = "bytes"
SPEED: Literal["tokens per second"] = "tokens per second"


@dataclass(frozen=True)
class MeasuredValue:
    """A planned and a measured value."""

    name: str
    unit: Literal["bytes", "tokens per second"]
    planned: Annotated[
        float | None, doc("Of speeds the lowest estimate; null if nothing is planned.")
    ]
    measured: float
    ratio: Annotated[
        float | None, doc("Measured divided by planned; null if nothing is planned.")
    ]


@dataclass(frozen=True)
class Measured:
    """The measurements of a device, compared with the plan."""

    device: Annotated[str, doc("Identifier of the device.")]
    system: Annotated[str, doc("Version of the device's system; empty if unknown.")]
    backend: Annotated[str, doc("Name of the plan with which they are compared.")]
    context: Annotated[
        Count, doc("Tokens of the longest measurement, for which bytes are planned.")
    ]
    thermal_state: Annotated[str, doc("Thermal state after three minutes; empty if unknown.")]
    margin: Annotated[
        float, doc("Margin that the device needed, as a share of the modelled bytes.")
    ]
    values: tuple[MeasuredValue, ...]


def read_measured(path: Path) -> BenchResult:
    """Read the measurements of a device; UserError if the file has another content."""
    return read_json(path, BenchResult, "a file of measurements", REMEDY)


def measured_device(result: BenchResult, devices: Catalogue) -> Device:
    """Return the device that was measured; UserError if it is not in the catalogue."""
    identifier = result.machine.identifier
    if not identifier:
        raise usage_error("the measurements name no device", REMEDY, where="--measured")
    return devices.find(identifier)[0]


def compare(result: BenchResult, workload: Workload, device: Device) -> Measured:
    """Compare measurements with the plan for the same model, device and settings.

    Raises UserError: another model or other settings were measured.
    """
    runs = runs_of(result, workload)
    longest = max(1, runs[-1].prompt_tokens + result.tokens)
    # A measurement has no reply with thoughts, of which a session would keep a copy.
    plan = replace(workload, context=longest, drops_thoughts=False).plan(device.backend)
    peak = max(run.peak_bytes for run in runs) + result.weights_bytes
    values = [
        compared("weights", BYTES, plan.weights, result.weights_bytes),
        compared("caches", BYTES, plan.caches + plan.archive, max(run.bytes for run in runs)),
        compared("MLX", BYTES, plan.mlx, peak),
    ]
    if result.footprint_bytes is not None and len(runs) == len(result.caches):
        values.append(compared("total", BYTES, plan.total, result.footprint_bytes))
    return Measured(
        device=device.identifier,
        system=result.machine.system_version,
        backend=device.backend,
        context=longest,
        thermal_state=result.thermal_state,
        margin=round(max(0, peak - plan.mlx) / max(1, plan.of(*terms.MODELLED)), 4),
        values=(*values, *speeds(runs, workload, device, result.tokens)),
    )


def runs_of(result: BenchResult, workload: Workload) -> list[CacheSpeed]:
    """Return the measurements of the planned cache; UserError if there are none."""
    common = workload.common
    rows = common.max_size if common.evicts else None
    model, planned = model_display_name(result.model), model_display_name(workload.model.id)
    if model != planned:
        raise other(f"the model {model}, not of {planned}", f"Give --model {result.model}.")
    if result.max_kv != rows:
        remedy = f"Give --max-kv {result.max_kv}." if result.max_kv else "Leave out --max-kv."
        raise other(f"{rows_text(result.max_kv)}, not of {rows_text(rows)}", remedy)
    if result.prefill_step != workload.step:
        raise other(
            f"chunks of {result.prefill_step} tokens, not of {workload.step}",
            f"Give --prefill-step {result.prefill_step}.",
        )
    name = cache_name(workload)
    runs = [run for run in result.caches if run.name == name]
    if not runs:
        names = ", ".join(dict.fromkeys(run.name for run in result.caches)) or "nothing"
        raise other(f"{names}, not of {name}", "Give --kv, --recall and --no-recall as there.")
    most = max(run.prompt_tokens for run in runs) + result.tokens
    if most > workload.config.context:
        remedy = f"The model can attend to {workload.config.context} tokens. {REMEDY}"
        raise other(f"{most} tokens", remedy)
    return sorted(runs, key=lambda run: run.prompt_tokens)


def rows_text(rows: int | None) -> str:
    """Describe how many tokens caches keep."""
    return "caches of every token" if rows is None else f"max_kv {rows}"


def other(what: str, remedy: str) -> UserError:
    """Return the error for measurements of something else than what is planned."""
    return usage_error(f"the measurements are of {what}", remedy, where="--measured")


def cache_name(workload: Workload) -> str:
    """Return the name of a workload's caches in measurements."""
    kv = workload.storage.name
    if workload.common.evicts:
        return f"{kv}+recall" if workload.recall else kv
    return "kv" if workload.storage.is_dense else f"full/{kv}"


def speeds(
    runs: list[CacheSpeed], workload: Workload, device: Device, tokens: int
) -> Iterator[MeasuredValue]:
    """Yield the speed of generation after each prompt, and of reading it.

    tokens: the number of generated tokens. The plan has no speed of a prompt.
    """
    for run in runs:
        at_end = workload.with_context(run.prompt_tokens + tokens)
        speed = estimate(at_end, device)
        planned = None if speed is None else speed.tokens_per_second[0]
        after = f"after {run.prompt_tokens:,} tokens" if run.prompt_tokens > 1 else "at once"
        yield compared(f"generates {after}", SPEED, planned, run.tokens_per_second)
    for run in runs:
        if run.prompt_tokens_per_second is not None:
            name = f"reads {run.prompt_tokens:,} tokens"
            yield compared(name, SPEED, None, run.prompt_tokens_per_second)


def compared(
    name: str,
    unit: Literal["bytes", "tokens per second"],
    planned: float | None,
    measured: float,
) -> MeasuredValue:
    """Return a planned and a measured value with their ratio."""
    ratio = round(measured / planned, 4) if planned else None
    return MeasuredValue(name, unit, planned, round(measured, 1), ratio)
