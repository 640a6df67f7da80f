"""Whether a system prompt's caches can be computed: known before anything is loaded."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from h2o_pack.errors import ExitCode, UserError
from h2o_pack.files.text import read_text, usage_error
from h2o_pack.memory.terms import MemoryPlan
from h2o_pack.plan.package_plan import Plan
from h2o_pack.prepared.opening import check_template
from h2o_pack.sizes import gigabytes

CONTAINER = Path("/sys/fs/cgroup/memory.max")
GIVE = "Give a UTF-8 text file as --system."


def read_system(file: Path | None) -> str:
    """Read the system prompt without the blank lines around it; "" where none is asked for.

    Raises:
        UserError: the file cannot be read or has no text.

    """
    if file is None:
        return ""
    text = read_text(file, GIVE).strip()
    if not text:
        raise usage_error(f"{file} has no text", GIVE)
    return text


def check_system(plan: Plan, unusable: str) -> None:
    """Check that the caches of the plan's system prompt can be computed, and then used.

    unusable: why the model's chat template cannot be used, "" if it can.

    Raises:
        UserError: the template has no place for it, or this machine has too little memory.

    """
    if unusable:
        remedy = "Leave --system out, or correct the template in a local copy of the model."
        raise UserError(unusable, where=plan.model.id, remedy=remedy, code=ExitCode.MODEL)
    if plan.chat_template is not None:
        check_template(plan.chat_template, plan.system)
    check_memory(plan.memory)


def needed_bytes(memory: MemoryPlan) -> int:
    """Return the bytes of weights, caches and what a chunk of a prompt takes."""
    return memory.weights + memory.caches + memory.archive + memory.prefill


def machine_bytes() -> int:
    """Return the memory of this machine, or of the container that this process is in."""
    size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):  # no container, or one without a limit ("max")
        size = min(size, int(CONTAINER.read_text("ascii")))
    return size


def check_memory(memory: MemoryPlan) -> None:
    """Refuse to read a prompt with a model that this machine has no memory for."""
    needed, there = needed_bytes(memory), machine_bytes()
    if needed <= there:
        return
    raise UserError(
        f"reading the system prompt takes {gigabytes(needed)} GB of memory, and this machine "
        f"has {gigabytes(there)} GB",
        remedy="Package the model on a machine with more, or leave --system out: the app then "
        "reads its system prompt in the first turn.",
        code=ExitCode.MEMORY,
    )
