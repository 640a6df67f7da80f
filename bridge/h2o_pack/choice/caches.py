"""The candidates of one model: for each way to store rows, the most of them that fit."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from h2o_pack.architectures.model import Model
from h2o_pack.choice.fit import Fit, fit, room_on
from h2o_pack.choice.losses import LossTable
from h2o_pack.choice.request import ChoiceRequest
from h2o_pack.choice.result import CacheCandidate, Reason, Refusal
from h2o_pack.errors import UserError
from h2o_pack.plan.options import CacheOptions, cache_config, read_budgets
from h2o_pack.plan.package_plan import make_request
from h2o_pack.plan.request import ROWS
from h2o_pack.plan.verdict import largest
from h2o_pack.sizes import gigabytes
from h2o_py.storages import STORAGE_BITS, SYNONYMS


@dataclass(frozen=True)
class Search:
    """Looks for the largest cache of one storage."""

    request: ChoiceRequest
    model: Model
    kv: str
    recall: bool

    def options(self, rows: int) -> CacheOptions:
        """Return the cache of so many rows."""
        return cache_options(self.request, rows, self.kv, recall=self.recall)

    def fit(self, rows: int) -> Fit:
        """Hold the cache of so many rows against the devices."""
        options = self.options(rows)
        config, _ = cache_config(options)
        planned = make_request(self.model, options, config, read_budgets(options))
        return fit(planned, self.request.devices)

    def serves(self, rows: int) -> bool:
        """Whether so many rows fit everywhere and are fast enough."""
        found = self.fit(rows)
        return found.has_room and found.is_fast(self.request.min_speed)

    def most_rows(self, least: int) -> int:
        """Return the most rows that serve, at least `least`; 0 if not even those do."""
        tokens = self.request.tokens
        if self.serves(tokens):
            return tokens
        if not self.serves(least):
            return 0
        return max(least, largest(0, tokens, lambda rows: not self.serves(rows), ROWS))


def cache_options(request: ChoiceRequest, rows: int, kv: str, *, recall: bool) -> CacheOptions:
    """Return the options of a cache; what recall brings back waits in files if it is chosen."""
    chosen = recall and request.recall is None
    return replace(
        request.cache,
        max_kv=rows,
        kv=kv,
        context=request.tokens,
        recall=recall,
        archive="files" if chosen else request.cache.archive,
    )


def caches(request: ChoiceRequest, model: Model, table: LossTable) -> list[CacheCandidate]:
    """Return a candidate for each storage, those that serve first, by what they lose.

    Of those that serve all but the first are refused because they lose more.
    """
    names = STORAGE_BITS if request.kv is None else (SYNONYMS.get(request.kv, request.kv),)
    found = [candidate(request, model, kv, table) for kv in names]
    serving = sorted((each for each in found if each.refused is None), key=by_loss)
    if serving:
        best = serving[0]
        serving[1:] = [replace(each, refused=loses_more(each, best)) for each in serving[1:]]
    return [*serving, *(each for each in found if each.refused is not None)]


def by_loss(candidate: CacheCandidate) -> tuple[bool, float, int]:
    """Put candidates in order; at equal losses the smaller one comes first."""
    lost, kl = candidate.loss.order if candidate.loss else (True, math.inf)
    return lost, kl, candidate.needed


def candidate(
    request: ChoiceRequest, model: Model, kv: str, table: LossTable
) -> CacheCandidate:
    """Return the largest cache of a storage that serves, or why none does."""
    tokens, least = request.tokens, table.least_share(kv)
    if request.max_kv is None and least is None and kv != "dense":
        return refused(kv, "not measured", f"was not measured on {table.model}")
    few = tokens if least is None else math.ceil(least * tokens)
    search = Search(request, model, kv, recall=bool(request.recall))
    try:
        rows = request.max_kv or search.most_rows(few)
        if request.max_kv and not search.serves(rows):
            few, rows = rows, 0
        if not rows:
            return too_large(search, few)
        if rows < tokens and request.recall is None and table.recall_pays(rows / tokens):
            search, rows = with_recall(search, rows, few)
        found = search.fit(rows)
    except UserError as error:
        return refused(kv, "storage", error.what)
    share = min(1.0, rows / tokens)
    return CacheCandidate(
        kv=kv,
        max_kv=rows,
        share=round(share, 4),
        recall=search.recall,
        needed=found.needed,
        headroom_share=found.headroom_share,
        sustained=found.sustained,
        loss=table.loss(kv, share),
        refused=None,
    )


def with_recall(search: Search, rows: int, few: int) -> tuple[Search, int]:
    """Return the search with recall and its rows; as it was where recall does not fit."""
    recalling = replace(search, recall=True)
    if search.request.max_kv:
        return (recalling, rows) if recalling.serves(rows) else (search, rows)
    fewer = recalling.most_rows(few)
    return (recalling, fewer) if fewer else (search, rows)


def too_large(search: Search, rows: int) -> CacheCandidate:
    """Return the candidate of a storage of which not even so many rows serve."""
    found, floor = search.fit(rows), search.request.min_speed
    if not found.has_room:
        says = f"{gigabytes(found.needed)} GB with {rows:,} rows, {room_on(found.device)}"
        return refused(search.kv, "memory", says)
    speed = "unknown" if found.sustained is None else f"{found.sustained:.0f}"
    says = f"{speed} tokens/s with {rows:,} rows on {found.slowest.title}, under {floor:g}"
    return refused(search.kv, "speed", says)


def loses_more(candidate: CacheCandidate, best: CacheCandidate) -> Refusal:
    """Return why a candidate that serves comes behind the best."""
    if candidate.loss is None or best.loss is None:
        return Refusal("not measured", "so few rows were never measured")
    if candidate.loss.loses_facts and not best.loss.loses_facts:
        return Refusal("loses more", f"loses facts that {best.kv} keeps")
    if candidate.loss.order == best.loss.order:
        return Refusal("loses more", f"no better than {best.kv}, and larger")
    return Refusal("loses more", f"loses more than {best.kv}")


def refused(kv: str, reason: Reason, says: str) -> CacheCandidate:
    """Return a candidate that cannot be had."""
    return CacheCandidate(
        kv=kv,
        max_kv=0,
        share=0.0,
        recall=False,
        needed=0,
        headroom_share=0.0,
        sustained=None,
        loss=None,
        refused=Refusal(reason, says),
    )
