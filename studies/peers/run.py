"""Runs every contender of both sides on every batch, in a few processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from h2o_pack.measure.text import Tokens, held_out
from studies.peers.entries import BY_TOKEN, FULL, KVPRESS, ONCE, Entry
from studies.peers.ours import Ours
from studies.peers.tasks import BUDGETS, TASKS, batches

OUR_POLICIES = {  # sinks + recent reads no more at once than it keeps: see StreamingLLM
    BY_TOKEN: (
        "default",
        "default+recall4",
        "tuned",
        "tuned_by_layer",
        "paper_heavy",
        "sinks_recent",
    ),
    ONCE: ("default", "tuned", "tuned_by_layer", "paper_heavy"),
}
CLOSE = 1e-2
COMPARED_TOKENS = 256

_worker: dict[str, Any] = {}


@dataclass(frozen=True)
class Job:
    """A contender on one batch of a task."""

    entry: Entry
    task: int
    batch: int


def ours() -> list[Entry]:
    """Return all contenders of this project, the full cache first."""
    return [Entry(BY_TOKEN, FULL, 0)] + [
        Entry(protocol, policy, rows)
        for rows in BUDGETS
        for protocol, policies in OUR_POLICIES.items()
        for policy in policies
    ]


def theirs() -> list[Entry]:
    """Return the peer's contenders, the full cache first."""
    from studies.peers.theirs import PRESSES  # needs kvpress

    return [Entry(KVPRESS, FULL, 0)] + [
        Entry(KVPRESS, press, rows) for rows in BUDGETS for press in PRESSES
    ]


def run(
    model: Path, wanted: Sequence[Entry], processes: int, say: Callable[[str], None]
) -> dict[Entry, dict[str, list[float]]]:
    """Return each wanted contender's value for every sample, by task."""
    count = len(batches_of(model)[0])
    jobs = [
        Job(entry, task, batch)
        for task in range(len(TASKS))
        for entry in wanted
        for batch in range(count)
    ]
    results: dict[Entry, dict[str, list[float]]] = {}
    with ProcessPoolExecutor(
        processes,
        mp_context=get_context("spawn"),
        initializer=load,
        initargs=(model, any(entry.side == KVPRESS for entry in wanted)),
    ) as pool:
        for number, (job, values) in enumerate(zip(jobs, pool.map(work, jobs), strict=True), 1):
            by_task = results.setdefault(job.entry, {})
            by_task.setdefault(TASKS[job.task].name, []).extend(values)
            mean = sum(values) / len(values)
            say(f"{number} of {len(jobs)}: {job.entry}, {TASKS[job.task].name}: {mean:.3f}")
    return results


def batches_of(model: Path) -> list[list[Any]]:
    """Return the batches of all tasks, from the text and words held out."""
    from mlx_lm.utils import load_tokenizer  # slow to import

    text = held_out("source", model / "held_out")
    tokens = Tokens(load_tokenizer(model), text.documents)
    return [batches(task, tokens, text.words) for task in TASKS]


def load(model: Path, peer: bool) -> None:  # noqa: FBT001 - called by the pool
    """Load the models and the samples into a worker process."""
    if peer:
        from studies.peers.theirs import Peer  # needs kvpress

        _worker["peer"] = Peer(model, 1)
    _worker["ours"] = Ours(model)
    _worker["batches"] = batches_of(model)


def work(job: Job) -> list[float]:
    """Return a value for each sample of a batch: 1 or 0 for recall, or its nll."""
    batch = _worker["batches"][job.task][job.batch]
    side, name, rows = job.entry.side, job.entry.name, job.entry.rows
    if side == KVPRESS:
        who, how = _worker["peer"], ["" if name == FULL else name, rows]
    else:
        who, how = _worker["ours"], [name, rows, side]
    if not TASKS[job.task].asks:
        losses: list[float] = who.losses(batch, *how)
        return losses
    said = who.answers(batch, *how)
    decode = _worker["ours"].tokenizer.decode
    return [
        float(answer in decode(ids)) for answer, ids in zip(batch.answers, said, strict=True)
    ]


def difference_of_logits(model: Path) -> float:
    """Return by how much the two implementations' logits differ at most, in float32.

    Raises:
        ValueError: by more than can be rounding: then nothing can be compared.

    """
    from studies.peers.theirs import Peer  # needs kvpress

    ids = [batches_of(model)[0][0].context[0][:COMPARED_TOKENS]]
    theirs = Peer(model, 1).logits(ids).numpy()
    mine = np.array(Ours(model).logits(ids).astype(mx.float32))
    difference = float(np.abs(theirs - mine).max())
    if difference > CLOSE:
        raise ValueError(f"logits differ by {difference:.3g}: not the same model")
    return difference
