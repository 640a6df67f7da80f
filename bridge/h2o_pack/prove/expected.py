"""What is expected of a check, from its id and what was run: code states it, not the report."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cache

from h2o_pack.hub.resolve import resolve
from h2o_pack.memory import terms
from h2o_pack.memory.terms import MemoryPlan
from h2o_pack.parity.case import SCORE_TOLERANCE, TOLERANCES
from h2o_pack.plan.measured import MLX, TOTAL
from h2o_pack.plan.request import Request
from h2o_pack.prove import paper
from h2o_pack.prove.ids import KERNELS, MEMORY, OP, PRESSURE, PUBLISHED, SPEED, TOKENS, TRACE
from h2o_pack.prove.report import Rule, Setting, Source
from h2o_py.config import H2OConfig

LEVELS = (KERNELS, OP, TRACE, TOKENS)
DIFFERENCES, OUTPUTS, SCORES = "differences", "outputs", "scores"
RATIO = "ratio"
REPLY = "reply "  # of a conversation, before, while and after memory is short
PEAK_TOLERANCE = 0.1  # of the plan's model of memory, docs/verification.md
EXACT = (terms.WEIGHTS, terms.KV, terms.LEDGER)
LEAST_SPEED = 0.9  # of mlx-lm's own cache, with dense rows
LEAST_QUANTIZED = 0.8  # with others: on a CPU codes are read more slowly than numbers
SPEED_TOLERANCE = 0.1  # of two medians on a machine that does other things too


@dataclass(frozen=True)
class Expected:
    """What a check compares with; the fields of the same names of `Check`."""

    rule: Rule
    value: float
    source: Source
    tolerance: float = 0.0


def expected_of(name: str, setting: Setting) -> Expected | None:
    """Return what is expected of a check; None where only the run itself can say.

    Raises:
        UserError: the setting's model is not there, or cannot be planned so.

    """
    part, _, rest = name.partition("/")
    if part in LEVELS:
        return of_level(part, rest)
    if part == MEMORY and rest in {*terms.ALL, MLX, TOTAL}:
        return of_memory(rest, plan_of(setting))
    if part == PUBLISHED:
        return of_paper(*rest.split("/"))
    if part == PRESSURE and rest.startswith(REPLY):
        return Expected("equal", 1, "goal")
    if part == SPEED and rest.startswith(f"{RATIO}/"):
        least = LEAST_SPEED if rest.endswith("/dense") else LEAST_QUANTIZED
        return Expected("at least", least, "goal", SPEED_TOLERANCE)
    return None


def of_level(level: str, name: str) -> Expected | None:
    """Return what is expected of a case of parity, "<case>/<dtype>/<what>"."""
    from h2o_pack.parity import tokens  # needs MLX

    case, _, rest = name.rpartition("/")[0].rpartition("/")
    what = name.rpartition("/")[2]
    if what == DIFFERENCES:
        return Expected("equal", 0, "reference")
    if what == SCORES:
        return Expected("at most", SCORE_TOLERANCE, "reference")
    if what != OUTPUTS or rest not in TOLERANCES:
        return None
    if level != TOKENS:
        return Expected("at most", TOLERANCES[rest], "reference")
    kv = case.removeprefix("kv ").partition(",")[0] if case.startswith("kv ") else None
    return Expected("at most", tokens.tolerance(rest, kv), "mlx-lm")


def of_paper(model: str, what: str = "", cache: str = "") -> Expected | None:
    """Return what the paper says of a ratio of speeds, which holds on other machines too."""
    found = paper.ratio(model, cache) if what == RATIO else None
    return None if found is None else Expected("at least", found, "paper", SPEED_TOLERANCE)


def of_memory(term: str, plan: MemoryPlan) -> Expected:
    """Return what the plan says of a term; on a phone it says what is not exceeded."""
    value = {TOTAL: plan.total, MLX: plan.mlx}.get(term, plan.of(term))
    if term in EXACT:
        return Expected("equal", value, "plan")
    rule: Rule = "within" if plan.backend in {"cpu", "mac"} else "at most"
    return Expected(rule, value, "plan", PEAK_TOLERANCE)


@cache
def plan_of(setting: Setting) -> MemoryPlan:
    """Plan what was run.

    Raises:
        UserError: the model is not there, or cannot be planned so.

    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cache_of_layer = H2OConfig(setting.max_kv)
    model = resolve(setting.model)
    caches = tuple(
        cache_of_layer if layer.kind == "full" else None for layer in model.config.layers
    )
    request = Request(model, caches, setting.kv, setting.context, setting.prefill_step)
    return request.plan(setting.backend)
