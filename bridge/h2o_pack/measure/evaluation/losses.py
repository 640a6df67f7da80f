"""Makes the table of losses, by which caches are chosen, of a report."""

from __future__ import annotations

from h2o_pack.choice.losses import Loss, LossTable, MeasuredLoss, MeasuredRecall
from h2o_pack.measure.evaluation.contenders import UNBOUNDED, find_contender
from h2o_pack.measure.evaluation.results import Cell, Report
from h2o_pack.measure.evaluation.statistics import compare, rounded

POLICY = "default"
ASKED = "asked"


def losses(report: Report) -> LossTable | None:
    """Return what the default policy's caches lost, by storage and rows; None without any.

    Of tables with facts in the text, those with the most tokens count.
    """
    read = [
        (experiment, group.cells)
        for experiment in report.experiments
        if experiment.task == "read" and experiment.ask == "one"
        for group in experiment.groups
    ]
    tokens = max((cell.length for _, cells in read for cell in cells), default=0)
    caches: dict[tuple[str, int], MeasuredLoss] = {}
    samples = 0
    for experiment, cells in read:
        at_length = [cell for cell in cells if cell.length == tokens]
        full = next(cell for cell in at_length if cell.contender == UNBOUNDED)
        for cell in at_length:
            who = find_contender(cell.contender)
            if who.policy != POLICY or who.pinned or who.recall is not None:
                continue
            caches[who.storage, cell.rows] = measured(cell, full)
            samples = experiment.samples * len(experiment.seeds or report.seeds)
    if not caches:
        return None
    return LossTable(
        model=report.model.name,
        parameters_sha256=report.model.parameters_sha256,
        text=report.text,
        samples=samples,
        tokens=tokens,
        caches=tuple(caches[key] for key in sorted(caches)),
        recall=tuple(sorted(with_recall(report), key=lambda each: each.share)),
    )


def measured(cell: Cell, full: Cell) -> MeasuredLoss:
    """Return one cache's loss against the full cache on the same samples."""
    facts = compare(cell.by_sample["recall"], full.by_sample["recall"], lower_is_better=False)
    return MeasuredLoss(
        kv=find_contender(cell.contender).storage,
        share=rounded(min(1.0, cell.rows / cell.length)),
        byte_share=rounded(cell.bytes / full.bytes),
        loss=Loss(
            kl=cell.metrics["kl"].mean,
            facts=cell.metrics["recall"].mean,
            loses_facts=facts.verdict == "worse",
        ),
    )


def with_recall(report: Report) -> list[MeasuredRecall]:
    """Return the caches that were measured with recall and without."""
    found = []
    for experiment in report.experiments:
        for group in experiment.groups if experiment.task == "prompts" else ():
            plain = {
                (cell.length, cell.budget): cell
                for cell in group.cells
                if cell.contender == POLICY
            }
            for cell in group.cells:
                who = find_contender(cell.contender)
                base = plain.get((cell.length, cell.budget))
                if base is None or who.recall != 0 or ASKED not in cell.difference:
                    continue
                found.append(
                    MeasuredRecall(
                        share=rounded(cell.rows / cell.length),
                        facts=base.metrics[ASKED].mean,
                        recalled=cell.metrics[ASKED].mean,
                        better=cell.difference[ASKED].verdict == "better",
                    )
                )
    return found
