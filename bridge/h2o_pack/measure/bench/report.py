"""Everything that a run measured, and its JSON.

Keys of the JSON document:

    format              1; raised when keys change their meaning
    machine             processor, cores, system, instruction_set, load (processes waiting
                        for a core when the run began), python, mlx, mlx_lm, h2o_pack
    options             heads, kv_heads, head_dim, capacity, dtypes, model, tokens, quick
    peak                multiply-adds a second (float32) of one core
    evaluation          timing of mx.eval for one addition of one element after a pause,
                        which every step that is evaluated alone contains
    contenders          name: title
    not_run             name: why this version cannot make that contender
    steps               list of {dtype, timings: {name: timing}, dense_on_one_core: timing}:
                        a decode step of one layer
    evictions           list of {dtype, ours_evicting, ours_not_evicting, paper_evicting,
                        paper_not_evicting: timing}
    pipelining          list of {name, dtype, alone, queued: timing, cache_bytes,
                        allocated_bytes, kept_bytes}
    upstream_write      {dtype, alone, queued: timing}: mlx-lm's KVCache at 5,000 rows
    scaling             {dtype, by_capacity: {C: timing}, by_tokens_seen: {multiple of C:
                        timing}, start, slope (microseconds, and microseconds a row)}
    model               {name, dtype, layers, capacity, prompt_tokens, tokens, timings:
                        {name: timing and tokens_per_second}, not_run}
    claims              list of {name, dtype, value, direction, goal, verdict}; goal and
                        direction are null where a ratio is there for comparison

A timing is {median, first_quartile, third_quartile, samples}: microseconds a step or token,
and the number of repetitions.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any

from h2o_pack.measure.bench import claims
from h2o_pack.measure.bench.claims import Claim
from h2o_pack.measure.bench.eviction import Eviction
from h2o_pack.measure.bench.machine import Machine
from h2o_pack.measure.bench.options import Options
from h2o_pack.measure.bench.pipelining import Pipelining, UpstreamWrite
from h2o_pack.measure.bench.scaling import Scaling
from h2o_pack.measure.bench.steps import Steps
from h2o_pack.measure.bench.timing import Timing
from h2o_pack.measure.bench.whole_model import WholeModel

FORMAT = 1


@dataclass(frozen=True)
class Report:
    """A run. peak: float32 multiply-adds a second of one core; titles by name.

    evaluation: what mx.eval takes for next to nothing.
    """

    machine: Machine
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

    @property
    def claims(self) -> tuple[Claim, ...]:
        """Every goal beside its measured ratio."""
        return (
            *(
                c
                for each in self.steps
                for c in claims.step_claims(each, self.options, self.peak)
            ),
            *(c for each in self.evictions for c in claims.eviction_claims(each)),
            *(
                c
                for each in self.pipelining
                for c in claims.pipelining_claims(each, self.options, self.peak)
            ),
            *claims.upstream_claims(self.upstream_write),
            *claims.scaling_claims(self.scaling),
        )

    def to_json(self) -> str:
        """The document that this module describes."""
        line = self.scaling.line
        document = {
            "format": FORMAT,
            "machine": asdict(self.machine),
            "options": asdict(self.options),
            "peak": self.peak,
            "evaluation": _plain(self.evaluation),
            "contenders": self.contenders,
            "not_run": self.not_run,
            "steps": [_plain(each) for each in self.steps],
            "evictions": [_plain(each) for each in self.evictions],
            "pipelining": [_plain(each) for each in self.pipelining],
            "upstream_write": _plain(self.upstream_write),
            "scaling": {**_plain(self.scaling), "start": line.start, "slope": line.slope},
            "model": _plain(self.model),
            "claims": [{**asdict(each), "verdict": each.verdict} for each in self.claims],
        }
        for timing in document["model"]["timings"].values():
            timing["tokens_per_second"] = 1e6 / timing["median"]
        return json.dumps(document, indent=2)


def _plain(value: Any) -> Any:
    """Nested dataclasses as dictionaries, timings as their figures."""
    if isinstance(value, Timing):
        first, third = value.quartiles
        return {
            "median": value.median,
            "first_quartile": first,
            "third_quartile": third,
            "samples": len(value.samples),
        }
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if hasattr(value, "__dataclass_fields__"):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    return value
