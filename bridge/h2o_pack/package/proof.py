"""What a package's app holds a device against: the plan, as `h2o-pack prove` makes it again."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass

from h2o_pack import __version__
from h2o_pack.facts import pins
from h2o_pack.memory.terms import KV, LEDGER, WEIGHTS, MemoryPlan
from h2o_pack.plan.package_plan import BACKENDS, Plan
from h2o_pack.plan.request import Request
from h2o_py.config import H2OConfig

PRODUCT = "h2o-pack"
UPSTREAM = ("mlx-swift", "mlx-swift-lm")


@dataclass(frozen=True)
class ProofValues:
    """Values of a model's `H2OProofSetting`.

    terms: bytes by the names of the plan's terms for "phone" and "tablet"; none where a
    report's setting does not say all that the plan depends on, such as budgets.
    """

    model: str
    kv: str
    versions: Mapping[str, str]
    terms: Mapping[str, Mapping[str, int]]


def proof_values(plan: Plan) -> ProofValues:
    """Return what the package says of one model."""
    pinned = pins(plan.upstream_version)
    versions = {name: pinned[name].version for name in UPSTREAM}
    return ProofValues(
        model=plan.model.id,
        kv=plan.storage,
        versions={PRODUCT: __version__, **versions},
        terms={device: counted_terms(plan, device) for device in BACKENDS},
    )


def counted_terms(plan: Plan, device: str) -> dict[str, int]:
    """Return the terms that a device counts exactly, if its report can be planned again."""
    own = plan.memory_of[device]
    has_windows = any(layer.kind == "sliding" for layer in plan.model.config.layers)
    if has_windows or planned_by_setting(plan, own) != own:
        return {}
    return {name: own.of(name) for name in (WEIGHTS, KV, LEDGER)}


def planned_by_setting(plan: Plan, own: MemoryPlan) -> MemoryPlan:
    """Plan what the setting of a report says, as `h2o_pack.prove.expected` does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cache = H2OConfig(plan.cache.max_size)
    layers = plan.model.config.layers
    caches = tuple(cache if layer.kind == "full" else None for layer in layers)
    request = Request(plan.model, caches, plan.storage, own.context, own.prefill_step)
    return request.plan(own.backend)
