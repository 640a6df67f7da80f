"""Whether what a report says of its machine can be true of one machine."""

from __future__ import annotations

import re
from collections.abc import Iterator

from h2o_pack.devices.catalogue import catalogue
from h2o_pack.prove.contradiction import Contradiction, place
from h2o_pack.prove.ids import MEMORY, part_of
from h2o_pack.prove.report import ProofReport, ProvenMachine

BACKENDS = {
    "Linux": ("cpu",),
    "macOS": ("cpu", "mac"),
    "iOS": ("iphone",),
    "iPadOS": ("ipad",),
}
"""The plan's backends that a system can be of."""
RUNS_ON = {"app": {"iOS", "iPadOS", "macOS"}, "h2o-pack": {"Linux", "macOS"}}
IDENTIFIERS = {"iOS": r"iPhone\d+,\d+", "iPadOS": r"iPad\d+,\d+", "macOS": r"\w*Mac\w*\d+,\d+"}


def wrong_machine(report: ProofReport) -> Iterator[Contradiction]:
    """System, identifier, chip, memory, GPU and the plan's backend go together."""
    machine, backend = report.machine, report.setting.backend
    allowed = BACKENDS[machine.system]
    if backend not in allowed:
        what = f'"{backend}" is not of {machine.system}, which has {" and ".join(allowed)}'
        yield Contradiction("setting.backend", what)
    if (backend == "cpu") != (machine.gpu == ""):
        gpu = f'"{machine.gpu}"' if machine.gpu else "no GPU"
        yield Contradiction("machine.gpu", f'{gpu} does not go with the backend "{backend}"')
    pattern = IDENTIFIERS.get(machine.system)
    if pattern and not re.fullmatch(pattern, machine.identifier):
        what = f'"{machine.identifier}" is not a machine with {machine.system}'
        yield Contradiction("machine.identifier", what)
    if machine.system not in RUNS_ON[report.tool]:
        yield Contradiction("tool", f'"{report.tool}" does not run on {machine.system}')
    yield from unlike_the_catalogue(machine)
    for n, check in enumerate(report.checks):
        in_bytes = part_of(check.id) == MEMORY and check.unit == "bytes"
        if in_bytes and (check.measured or 0) > machine.memory_bytes:
            yield Contradiction(f"{place(n, check)}.measured", "the machine has less memory")


def unlike_the_catalogue(machine: ProvenMachine) -> Iterator[Contradiction]:
    """A device that the catalogue has is as it says."""
    every = catalogue().all_devices()
    known = [each for each in every if each.identifier == machine.identifier]
    if not known:
        return
    chip = known[0].chip
    if machine.chip and chip not in machine.chip:
        what = f'"{machine.chip}" is not the {chip} of {machine.identifier}'
        yield Contradiction("machine.chip", what)
    most = max(each.ram or 0 for each in known)
    if most and machine.memory_bytes > most:
        what = f"{machine.identifier} has {most} bytes at most"
        yield Contradiction("machine.memory_bytes", what)
