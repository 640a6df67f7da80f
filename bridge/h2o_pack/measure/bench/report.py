"""Everything that a run measured: what `h2o-pack bench --json` prints."""

from __future__ import annotations

from dataclasses import dataclass

from h2o_pack.measure.bench.claims import Claim
from h2o_pack.measure.bench.eviction import Eviction
from h2o_pack.measure.bench.options import Options
from h2o_pack.measure.bench.pipelining import Pipelining, UpstreamWrite
from h2o_pack.measure.bench.scaling import Scaling
from h2o_pack.measure.bench.steps import Steps
from h2o_pack.measure.bench.whole_model import WholeModel
from h2o_pack.measure.machine import BusyMachine
from h2o_pack.measure.timing import Timing
from h2o_pack.results import Result


@dataclass(frozen=True, kw_only=True)
class Report(Result):
    """A run.

    peak: float32 multiply-adds per second of one core. evaluation: what mx.eval takes for one
    addition of one element after a pause, which every step that is evaluated alone contains.
    contenders: titles of the caches by name. not_run: always empty; kept so that older
    readers find it. claims: every goal beside its measured ratio.
    """

    machine: BusyMachine
    options: Options
    peak: float
    evaluation: Timing
    contenders: dict[str, str]
    not_run: dict[str, str]
    steps: tuple[Steps, ...]
    evictions: tuple[Eviction, ...]
    pipelining: tuple[Pipelining, ...]
    upstream_write: UpstreamWrite
    scaling: Scaling
    model: WholeModel
    claims: tuple[Claim, ...]
