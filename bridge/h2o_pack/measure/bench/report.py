"""Everything that a run measured: what `h2o-pack bench --json` prints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from h2o_pack.measure.bench.archive_writing import Writing
from h2o_pack.measure.bench.claims import Claim
from h2o_pack.measure.bench.eviction import Eviction
from h2o_pack.measure.bench.options import Options
from h2o_pack.measure.bench.pipelining import Pipelining, UpstreamWrite
from h2o_pack.measure.bench.recall import RecallCost
from h2o_pack.measure.bench.scaling import Scaling
from h2o_pack.measure.bench.steps import Steps
from h2o_pack.measure.bench.whole_model import WholeModel
from h2o_pack.measure.machine import BusyMachine
from h2o_pack.measure.timing import Timing
from h2o_pack.results import Result, doc


@dataclass(frozen=True, kw_only=True)
class Report(Result):
    """H2O caches beside mlx-lm's on one machine."""

    machine: BusyMachine
    options: Options
    peak: Annotated[float, doc("Float32 multiply-adds per second of one core.")]
    evaluation: Annotated[
        Timing,
        doc("mx.eval of one addition after a pause: part of every step evaluated alone."),
    ]
    contenders: Annotated[dict[str, str], doc("Titles of the caches, by name.")]
    not_run: Annotated[
        dict[str, str],
        doc("Always empty; earlier versions named caches here that they could not make."),
    ]
    steps: Annotated[tuple[Steps, ...], doc("A decode step of one layer, by dtype.")]
    evictions: Annotated[
        tuple[Eviction, ...], doc("Steps that evict, beside steps that do not.")
    ]
    pipelining: Annotated[
        tuple[Pipelining, ...], doc("Steps queued one ahead, beside steps evaluated alone.")
    ]
    upstream_write: Annotated[UpstreamWrite, doc("mlx-lm's KVCache at 5,000 rows.")]
    scaling: Annotated[Scaling, doc("Growth with rows and with tokens seen.")]
    recall: Annotated[RecallCost, doc("One layer with recall beside one without.")]
    archive_writing: Annotated[
        tuple[Writing, ...], doc("Steps that write a block of the archive, beside others.")
    ]
    model: Annotated[WholeModel, doc("A whole model.")]
    claims: Annotated[tuple[Claim, ...], doc("Every goal beside its measured ratio.")]
