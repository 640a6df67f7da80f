"""The nearest settings that fit, for who asked for some that do not."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from h2o_pack.devices.device import Device
from h2o_pack.devices.facts import ENTITLED
from h2o_pack.errors import ExitCode, UserError
from h2o_pack.facts import KnownModel
from h2o_pack.memory.storages import storage_of
from h2o_pack.plan.request import Request, known_fitting
from h2o_pack.plan.verdict import verdict
from h2o_pack.sizes import gigabytes

STEPS = (256, 128, 64)
COMPACT = ("8", "k8v4", "4")


def remedies(
    request: Request, models: tuple[KnownModel, ...], limit: int, backend: str
) -> Iterator[str]:
    """Settings that fit into the limit, those that cost least first."""

    def fits(changed: Request) -> bool:
        return changed.plan(backend).total <= limit

    if request.recall is not None:
        files = dataclasses.replace(request, archive_in_files=True)
        if not request.archive_in_files and fits(files):
            yield "--archive files"
        if fits(request.without_recall()):
            yield "--no-recall"
    for step in STEPS:
        if step < request.step and fits(dataclasses.replace(request, step=step)):
            yield f"--prefill-step {step}"
            break
    if any(request.caches) and request.kv == "dense" and can_quantize(request):
        for kv in COMPACT:
            if fits(dataclasses.replace(request, kv=kv)):
                yield f"--kv {kv}"
                break
    rows = request.largest_max_kv(limit, backend)
    if rows and (rows < request.max_kv or not request.max_kv):
        yield f"--max-kv {rows}"
    known = known_fitting(request, models, limit, backend)
    if known is not None and request.model.id not in (known.name, known.hub):
        yield f"--model {known.name}"


def can_quantize(request: Request) -> bool:
    """Whether the heads can be quantized in groups."""
    try:
        storage_of(COMPACT[0], request.model.config, request.group_size)
    except UserError:
        return False
    return True


def require(request: Request, models: tuple[KnownModel, ...], device: Device) -> None:
    """Refuse a plan that a device cannot hold even with both entitlements.

    Raises:
        UserError: it is over the limit; says by how much and what would fit.

    """
    request = request.on(device)
    plan = request.plan(device.backend)
    limit = device.limit_entitled
    if limit is None or verdict(plan.total, limit).verdict != "does not fit":
        return
    found = tuple(remedies(request, models, limit, device.backend))
    number = device.number(ENTITLED)
    kind = "" if number is None else f", {number.kind}"
    raise UserError(
        f"{request.model.id} needs {gigabytes(plan.total)} GB and an app on {device.title} may "
        f"use {gigabytes(limit)} GB with both memory entitlements{kind}",
        where=device.identifier,
        remedy=(f"What would fit: {', or '.join(found)}." if found else "No setting fits.")
        + " `h2o-pack plan` shows what takes how much.",
        code=ExitCode.MEMORY,
    )
