"""Whether a system prompt's caches can be computed: known before anything is loaded."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from h2o_pack.config_errors import user_errors
from h2o_pack.errors import ExitCode, UserError
from h2o_pack.files.text import read_text, usage_error
from h2o_pack.memory.terms import MemoryPlan
from h2o_pack.models.files import TOKENIZER
from h2o_pack.models.tokenizer import LARGEST, load_tokenizer
from h2o_pack.plan.package_plan import Plan
from h2o_pack.prepared.opening import check_template, opening_length, templated_turns
from h2o_pack.sizes import gigabytes

CONTAINER = Path("/sys/fs/cgroup/memory.max")
GIVE = "Give a UTF-8 text file as --system."
MARKS = 8
"""Tokens that stand around a text at most."""


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
        UserError: the template has no place for it, the caches cannot pin it, or this machine
            has too little memory.

    """
    if unusable:
        remedy = "Leave --system out, or correct the template in a local copy of the model."
        raise UserError(unusable, where=plan.model.id, remedy=remedy, code=ExitCode.MODEL)
    if plan.chat_template is not None:
        check_template(plan.chat_template, plan.system)
    check_length(plan)
    check_memory(plan.memory)


def check_length(plan: Plan) -> None:
    """Refuse a prompt that the caches cannot pin, before the model's weights are fetched.

    Nothing is known of a model whose tokenizer the hub has and cannot be asked for.
    """
    most = len(plan.system.encode())
    if plan.chat_template is not None:
        most = max(
            len(each.encode()) for each in templated_turns(plan.chat_template, plan.system)
        )
    with suppress(UserError):  # a text has no more tokens than bytes, but for marks around it
        check_pinned(plan, most + MARKS)
        return
    from h2o_pack.hub.small_files import read_small

    files = read_small(plan.model, {TOKENIZER: LARGEST})
    if files:
        tokenizer = load_tokenizer(files[TOKENIZER], plan.model.id)
        check_pinned(plan, opening_length(tokenizer, plan.system, plan.chat_template))


def check_pinned(plan: Plan, tokens: int) -> None:
    """Refuse a prompt of so many tokens if the caches of a layer cannot pin it."""
    with pinning(tokens):
        for cache in dict.fromkeys((plan.cache, *filter(None, plan.caches))):
            replace(cache, pinned=(*cache.pinned, (0, tokens)))


@contextmanager
def pinning(tokens: int) -> Iterator[None]:
    """Say where caches refuse to pin a system prompt of so many tokens what it needs."""
    try:
        with warnings.catch_warnings(), user_errors():
            warnings.simplefilter("ignore")
            yield
    except UserError as error:
        raise UserError(
            f"the system prompt has {tokens} tokens, which do not fit: {error.what}",
            remedy="Shorten it, raise --max-kv, or lower --recent-budget.",
            code=ExitCode.USAGE,
        ) from error


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
