"""The candidates of one model: for each way to store rows, the most of them that fit."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from h2o_pack.architectures.model import Model
from h2o_pack.choice.choice import CacheCandidate, Reason, Refusal
from h2o_pack.choice.losses import LossTable
from h2o_pack.devices.catalogue import Device
from h2o_pack.errors import ExitCode, UserError
from h2o_pack.plan.device_fit import TIGHT
from h2o_pack.plan.speed import estimate, floor, recall_plan, with_recalls
from h2o_pack.plan.workload import ROWS, Workload, largest, workload_of
from h2o_pack.sizes import gigabytes
from h2o_pack.spec import CacheSpec, PackageSpec
from h2o_py.storages import STORAGE_BITS, SYNONYMS

CONTEXT = 8192  # tokens of a long conversation, where nobody says how long they get


@dataclass(frozen=True)
class Question:
    """What is to be chosen: a spec with one model, of which something is open.

    devices: all of them must hold it. model: None where it is open. min_speed: tokens per
    second after ten minutes.
    """

    spec: PackageSpec
    devices: tuple[Device, ...]
    model: Model | None = None
    min_speed: float = 0.0

    @property
    def cache(self) -> CacheSpec:
        """The cache as far as it is given."""
        return self.spec.models[0].cache

    @property
    def tokens(self) -> int:
        """Tokens of the longest conversation: by default what a given model can attend to."""
        if self.cache.context is not None:
            return self.cache.context
        return CONTEXT if self.model is None else min(CONTEXT, self.model.config.context)

    def filled(self, rows: int, kv: str, *, recall: bool) -> CacheSpec:
        """Return the cache with so many rows; if recall is chosen, its archive is in files."""
        chosen = recall and self.cache.recall is None
        return replace(
            self.cache,
            max_kv=rows,
            kv=kv,
            context=self.tokens,
            recall=recall,
            archive="files" if chosen else self.cache.archive,
        )


@dataclass(frozen=True)
class CacheFit:
    """A plan on some devices.

    device: the one that it leaves least on, with the bytes needed there and the part of the
    limit that is left. slowest, sustained: tokens per second after ten minutes, None where
    the speed on one of the devices is not known.
    """

    device: Device
    needed: int
    headroom_share: float
    slowest: Device
    sustained: float | None

    @property
    def has_room(self) -> bool:
        """Whether the margin stays free on every device."""
        return self.headroom_share >= TIGHT

    def is_fast(self, floor: float) -> bool:
        """Whether no device is slower than the floor."""
        return not floor or (self.sustained is not None and self.sustained >= floor)


def fit(workload: Workload, devices: tuple[Device, ...]) -> CacheFit:
    """Hold a plan against the limits of devices, all of which are known."""
    shares = {device: share_left(workload, device) for device in devices}
    speeds = {device: sustained(workload, device) for device in devices}
    tightest = min(devices, key=lambda device: shares[device])
    slowest = min(devices, key=lambda device: speeds[device] or 0.0)
    return CacheFit(
        device=tightest,
        needed=workload.on(tightest).plan(tightest.backend).total,
        headroom_share=round(shares[tightest], 4),
        slowest=slowest,
        sustained=speeds[slowest],
    )


def share_left(workload: Workload, device: Device) -> float:
    """Return the part of a device's limit that a plan leaves; negative if it is over it."""
    limit = limit_of(device)
    return (limit - workload.on(device).plan(device.backend).total) / limit


def sustained(workload: Workload, device: Device) -> float | None:
    """Return tokens per second after ten minutes, at least; None where nobody knows."""
    speed = estimate(workload.model, workload.plan(device.backend), device)
    speed = with_recalls(speed, recall_plan(workload), device)
    return None if speed is None else floor(speed)


def limit_of(device: Device) -> int:
    """Return what an app may use with both memory entitlements.

    Raises:
        UserError: nobody has said how much that is.

    """
    if device.limit_entitled is not None:
        return device.limit_entitled
    raise UserError(
        f"nobody knows how much memory an app may use on {device.title}",
        where=device.identifier,
        remedy="State it in a file of your own (--devices FILE): "
        '{ of = "' + device.identifier + '", what = "entitled", ... }.',
        code=ExitCode.USAGE,
    )


def room_on(device: Device) -> str:
    """Say how much of a device's limit a plan may take."""
    return f"may take {gigabytes((1 - TIGHT) * limit_of(device))} GB on {device.title}"


@dataclass(frozen=True)
class Search:
    """Looks for the largest cache of one storage."""

    question: Question
    model: Model
    kv: str
    recall: bool

    def fit(self, rows: int) -> CacheFit:
        """Hold the cache of so many rows against the devices."""
        spec = self.question.filled(rows, self.kv, recall=self.recall)
        return fit(workload_of(self.model, spec), self.question.devices)

    def serves(self, rows: int) -> bool:
        """Whether so many rows fit everywhere and are fast enough."""
        cache_fit = self.fit(rows)
        return cache_fit.has_room and cache_fit.is_fast(self.question.min_speed)

    def most_rows(self, least: int) -> int:
        """Return the most rows that serve, at least `least`; 0 if not even those do."""
        tokens = self.question.tokens
        if self.serves(tokens):
            return tokens
        if not self.serves(least):
            return 0
        return max(least, largest(0, tokens, lambda rows: not self.serves(rows), ROWS))


def caches(question: Question, model: Model, table: LossTable) -> list[CacheCandidate]:
    """Return a candidate for each storage, those that serve first, by what they lose.

    Of those that serve all but the first are refused because they lose more.
    """
    kv = question.cache.kv
    names = STORAGE_BITS if kv is None else (SYNONYMS.get(kv, kv),)
    candidates = [candidate(question, model, name, table) for name in names]
    serving = sorted((cache for cache in candidates if cache.refused is None), key=by_loss)
    if serving:
        best = serving[0]
        serving[1:] = [replace(cache, refused=loses_more(cache, best)) for cache in serving[1:]]
    return [*serving, *(cache for cache in candidates if cache.refused is not None)]


def by_loss(candidate: CacheCandidate) -> tuple[bool, float, int]:
    """Put candidates in order; at equal losses the smaller one comes first."""
    lost, kl = candidate.loss.order if candidate.loss else (True, math.inf)
    return lost, kl, candidate.needed


def candidate(question: Question, model: Model, kv: str, table: LossTable) -> CacheCandidate:
    """Return the largest cache of a storage that serves, or why none does."""
    tokens, least, given = question.tokens, table.least_share(kv), question.cache
    if given.max_kv is None and least is None and kv != "dense":
        return refused(kv, "not measured", f"was not measured on {table.model}")
    few = tokens if least is None else math.ceil(least * tokens)
    search = Search(question, model, kv, recall=bool(given.recall))
    try:
        rows = given.max_kv or search.most_rows(few)
        if given.max_kv and not search.serves(rows):
            few, rows = rows, 0
        if not rows:
            return too_large(search, few)
        if rows < tokens and given.recall is None and table.recall_pays(rows / tokens):
            search, rows = with_recall(search, rows, few)
        cache_fit = search.fit(rows)
    except UserError as error:
        return refused(kv, "storage", error.what)
    share = min(1.0, rows / tokens)
    return CacheCandidate(
        kv=kv,
        max_kv=rows,
        share=round(share, 4),
        recall=search.recall,
        needed=cache_fit.needed,
        headroom_share=cache_fit.headroom_share,
        sustained=cache_fit.sustained,
        loss=table.loss(kv, share),
        refused=None,
    )


def with_recall(search: Search, rows: int, few: int) -> tuple[Search, int]:
    """Return the search with recall and its rows; as it was where recall does not fit."""
    recalling = replace(search, recall=True)
    if search.question.cache.max_kv:
        return (recalling, rows) if recalling.serves(rows) else (search, rows)
    fewer = recalling.most_rows(few)
    return (recalling, fewer) if fewer else (search, rows)


def too_large(search: Search, rows: int) -> CacheCandidate:
    """Explain why a storage does not serve even with the fewest rows."""
    cache_fit, least = search.fit(rows), search.question.min_speed
    if not cache_fit.has_room:
        needed = gigabytes(cache_fit.needed)
        says = f"{needed} GB with {rows:,} rows, {room_on(cache_fit.device)}"
        return refused(search.kv, "memory", says)
    speed = "unknown" if cache_fit.sustained is None else f"{cache_fit.sustained:.0f}"
    where = cache_fit.slowest.title
    says = f"{speed} tokens/s with {rows:,} rows on {where}, under {least:g}"
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
