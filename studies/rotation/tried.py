"""The caches that are compared, and how many rows the same bytes buy each of them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

from h2o_pack.architectures.model import ModelConfig
from h2o_pack.measure.evaluation.cache_factory import CacheFactory
from h2o_pack.measure.evaluation.contenders import Contender, find_contender
from h2o_pack.memory.formulas import evicting_kv_bytes, ledger_bytes
from h2o_pack.memory.storages import STORAGES, Storage
from h2o_py import H2OConfig
from h2o_py.errors import H2OConfigWarning
from h2o_py.models import make_h2o_cache
from studies.rotation.caches import CoarseCache, RotatedCache, Rotation

GROUP = 64
THREE_BITS = Storage("3", (3, 3))
ALL = {**STORAGES, THREE_BITS.name: THREE_BITS}
EVICTING = ("8", "r8h4", "4", "3")


@dataclass(frozen=True)
class Tried(Contender):
    """A contender of `stored`, rotated or not; all tokens stay where `whole`."""

    stored: str = "dense"
    rotated: bool = False
    whole: bool = False


@dataclass(frozen=True)
class Level:
    """Caches that take the same bytes; the limit is that of a cache that keeps all tokens."""

    title: str
    limit: int
    tried: tuple[Tried, ...]


def storage_bytes(config: ModelConfig, stored: str, rows: int, length: int) -> int:
    """Bytes of the caches of all layers after `length` tokens, ledgers included."""
    cache, storage = of_rows(rows), replace(ALL[stored], group_size=GROUP)
    sizes = (cache.max_size, cache.recent_budget)
    return sum(
        evicting_kv_bytes(layer, storage, sizes, length, config.element_bytes)
        + ledger_bytes(layer, cache)
        for layer in config.layers
    )


def rows_for(config: ModelConfig, stored: str, limit: int, length: int) -> int:
    """Return the most rows whose bytes are at most `limit`."""
    fits, too_many = 8, 2 * length
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        if storage_bytes(config, stored, middle, 2 * length) <= limit:
            fits = middle
        else:
            too_many = middle
    return fits


def levels(config: ModelConfig, length: int) -> list[Level]:
    """Return all that is compared: at the bytes of all tokens in 4 and 3 bits, and at 1/8."""
    found = []
    for whole, part in (("4", 1), ("3", 1), ("", 8)):
        stored, rows = (whole or "dense"), length // part
        limit = storage_bytes(config, stored, rows, length)
        kept = [tried(whole, length, rotated, whole=True) for rotated in (False, True) if whole]
        for name in EVICTING:
            rows = rows_for(config, name, limit, length)
            if rows < length:
                kept += [tried(name, rows, rotated) for rotated in (False, True)]
        title = f"bytes of all tokens in {whole} bits" if whole else f"bytes of 1/{part} in 16"
        found.append(Level(title, limit, tuple(kept)))
    return found


def tried(stored: str, rows: int, rotated: bool, *, whole: bool = False) -> Tried:  # noqa: FBT001
    """Name a cache."""
    kept = "all tokens" if whole else f"{rows} rows"
    name = f"{kept}, {stored} bits{', rotated' if rotated else ''}"
    return Tried(name, "default", rows=rows, stored=stored, rotated=rotated, whole=whole)


class Factory(CacheFactory):
    """Makes the caches of `Tried`, and those of any other contender as ever."""

    def __init__(self, model: Any, head_dim: int) -> None:
        super().__init__(model)
        self._of, self._head_dim = model, head_dim

    def caches(
        self, contender: Contender, seed: int = 0, pinned: tuple[tuple[int, int], ...] = ()
    ) -> list[Any]:
        """Make new caches, one per layer."""
        if not isinstance(contender, Tried):
            return super().caches(contender, seed, pinned)
        config = of_rows(2 * contender.rows if contender.whole else contender.rows)
        if contender.stored == THREE_BITS.name:
            made = [CoarseCache(config, 3, GROUP) for _ in self._of.layers]
        else:
            made = make_h2o_cache(self._of, config, kv=contender.stored, group_size=GROUP)
        if not contender.rotated:
            return made
        return [RotatedCache(each, Rotation(self._head_dim, i)) for i, each in enumerate(made)]


def of_rows(rows: int) -> H2OConfig:
    """Return the default policy of so many rows."""
    with warnings.catch_warnings():  # small windows are tried on purpose
        warnings.simplefilter("ignore", H2OConfigWarning)
        return H2OConfig(rows)


FULL = find_contender("full")
