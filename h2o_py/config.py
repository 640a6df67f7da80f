"""Which rows a cache keeps: budgets, score and protection, in every part of the project."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, get_args

from h2o_py.errors import H2OConfigError, nearest
from h2o_py.errors import H2OConfigWarning as H2OConfigWarning  # noqa: PLC0414

Score = Literal["peak", "softmax", "abs_logit"]

_LARGEST = 2**31 - 1
_DEFAULT_DECAY = {"peak": 0.999, "softmax": 0.95, "abs_logit": 0.95}
_SAFE_RECENT = 64
_RANGES = "half-open position ranges (begin, end) with 0 <= begin < end"


@dataclasses.dataclass(frozen=True)
class H2OConfig:
    """The eviction policy of one layer's cache.

    A cache keeps `sink_size` first positions, the `recent_budget` newest ones and the
    `pinned` ranges whatever happens; all other rows compete by importance. Rows that no
    budget claims hold heavy hitters too.

    Args:
        max_size: rows that a KV head may keep (C).
        sink_size: positions below this are never evicted.
        heavy_budget: rows for heavy hitters; `None` is half of `max_size`.
        recent_budget: newest positions, never evicted; `None` is what is left.
        score: what a row's score follows: `peak`, the largest attention probability it
            got, fading by `decay` a query; `softmax`, the moving average of that
            probability; `abs_logit`, the moving average of |logit| (H2O on MLX, 3.2).
            Each is a mean over the query heads that share the KV head.
        decay: factor a query that sees the row applies to its score; `None` is 0.999 for
            `peak` and 0.95 for the averages.
        novelty: weight of how much a key differed from all keys before it; 0 for none.
        pinned: half-open position ranges that are never evicted.
        observation_window: queries at the end of a chunk that update scores.
        novelty_margin: 0 takes a key's difference as it is, 1 - cosine with the sum of all
            keys. Above 0 only what a key is off beyond a typical one and this margin, a
            difference of cosines, counts: a head whose keys have no common direction then
            has no novel ones and keeps what is recent or looked at.

    Raises:
        H2OConfigError: a value is out of range or the budgets leave nothing to evict.

    """

    max_size: int
    sink_size: int = 4
    heavy_budget: int = None  # type: ignore[assignment]  # None only until __post_init__
    recent_budget: int = None  # type: ignore[assignment]
    score: Score = "peak"
    decay: float = None  # type: ignore[assignment]
    novelty: float = 2.0
    pinned: tuple[tuple[int, int], ...] = ()
    observation_window: int = 64
    novelty_margin: float = 0.0

    def __post_init__(self) -> None:
        self._check_integer("max_size", self.max_size, 1)
        self._check_integer("sink_size", self.sink_size, 0)
        self._check_integer("observation_window", self.observation_window, 1)
        if self.score not in get_args(Score):
            raise unknown_choice("score", self.score, get_args(Score))
        object.__setattr__(self, "pinned", _checked_ranges(self.pinned))
        half = self.heavy_budget is None
        if half:
            object.__setattr__(self, "heavy_budget", self.max_size // 2)
        self._check_integer("heavy_budget", self.heavy_budget, 0)
        if self.recent_budget is None:
            smallest = (
                2 * self.sink_size + 1 if half else self.sink_size + self.heavy_budget + 1
            )
            self._fill_recent_budget(max(2, smallest))
        self._check_integer("recent_budget", self.recent_budget, 1)
        if self.decay is None:
            object.__setattr__(self, "decay", _DEFAULT_DECAY[self.score])
        self._check_number("decay", self.decay, 1.0)
        self._check_number("novelty", self.novelty, math.inf)
        self._check_number("novelty_margin", self.novelty_margin, math.inf)
        self._check_budgets()

    @classmethod
    def paper(cls, max_size: int, **changes: Any) -> H2OConfig:
        """The published policy (H2O on MLX): moving average of |logit|, no novelty."""
        settings: dict[str, Any] = {"score": "abs_logit", "decay": 0.95, "novelty": 0.0}
        return cls(max_size, **{**settings, **changes})

    @classmethod
    def tuned(cls, max_size: int, **changes: Any) -> H2OConfig:
        """A policy that keeps more facts among others like them, and costs text less.

        Measured on the embedded model only: docs/results/eval and docs/results/policy.

        A quarter of the rows for recent tokens, but 64 where half of them holds as many;
        attention fades by 0.97 a query; only keys that are off by more than a typical one
        count as novel.
        """
        sinks = changes.get("sink_size", 4)
        recent = min(max(max_size // 4, _SAFE_RECENT), max_size - sinks - max_size // 2)
        settings: dict[str, Any] = {"decay": 0.97, "novelty_margin": 0.25}
        if recent > 0:
            settings |= {"recent_budget": recent, "heavy_budget": max_size - sinks - recent}
        return cls(max_size, **{**settings, **changes})

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> H2OConfig:
        """The configuration that `to_dict` gave, or one with defaults where keys lack.

        Raises:
            H2OConfigError: a key is unknown, `max_size` is missing or a value is refused.

        """
        names = [field.name for field in dataclasses.fields(cls)]
        for key in values:
            if key not in names:
                near = nearest(key, names)
                raise H2OConfigError("unknown_field", field=key, near=near)
        if "max_size" not in values:
            raise H2OConfigError("missing_field", field="max_size")
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, all defaults filled in."""
        values = dataclasses.asdict(self)
        values["pinned"] = [list(bounds) for bounds in self.pinned]
        return values

    def _fill_recent_budget(self, smallest: int) -> None:
        """Give recent tokens what is left; `smallest` is the least max_size that leaves any."""
        left = self.max_size - self.sink_size - self.heavy_budget
        if left < 1:
            raise H2OConfigError(
                "no_recent_rows",
                max_size=self.max_size,
                sink_size=self.sink_size,
                heavy_budget=self.heavy_budget,
                smallest=smallest,
            )
        object.__setattr__(self, "recent_budget", left)

    def _check_budgets(self) -> None:
        heavy, recent = self.heavy_budget, self.recent_budget
        total = self.sink_size + heavy + recent
        if total > self.max_size:
            raise H2OConfigError(
                "budgets_exceed_max_size",
                sink_size=self.sink_size,
                heavy_budget=heavy,
                recent_budget=recent,
                total=total,
                max_size=self.max_size,
            )
        held = _covered((*self.pinned, (0, self.sink_size))) + recent
        if held >= self.max_size:
            raise H2OConfigError(
                "nothing_to_evict", max_size=self.max_size, held=held, needed=held + 1
            )
        if recent < _SAFE_RECENT:
            warnings.warn(
                H2OConfigWarning(
                    "short_recent_window", recent_budget=recent, safe_recent=_SAFE_RECENT
                ),
                stacklevel=4,
            )

    @staticmethod
    def _check_integer(name: str, value: object, least: int) -> None:
        if isinstance(value, bool) or not isinstance(value, int):
            raise out_of_range(name, value, "an integer")
        if not least <= value <= _LARGEST:
            raise out_of_range(name, value, f"between {least} and {_LARGEST}")

    @staticmethod
    def _check_number(name: str, value: object, most: float) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise out_of_range(name, value, "a number")
        if not (math.isfinite(value) and 0 <= value <= most):
            finite = "a finite number of 0 or more"
            raise out_of_range(
                name, value, finite if most == math.inf else f"between 0 and {most:g}"
            )


def _checked_ranges(ranges: Any) -> tuple[tuple[int, int], ...]:
    try:
        pairs = [tuple(bounds) for bounds in ranges]
    except TypeError:
        pairs = [(ranges,)]
    for pair in pairs:
        whole = all(isinstance(x, int) and not isinstance(x, bool) for x in pair)
        if len(pair) != 2 or not whole or not 0 <= pair[0] < pair[1] <= _LARGEST:  # noqa: PLR2004
            raise out_of_range("pinned", ranges, _RANGES)
    return tuple(pairs)


def out_of_range(field: str, value: object, allowed: str) -> H2OConfigError:
    """The error for a value that its setting does not allow."""
    return H2OConfigError("out_of_range", field=field, value=value, allowed=allowed)


def unknown_choice(field: str, value: object, known: Iterable[str]) -> H2OConfigError:
    """The error for a name that is not among the known ones."""
    names = tuple(known)
    return H2OConfigError(
        "unknown_choice",
        field=field,
        value=value,
        known=", ".join(names),
        near=nearest(value, names),
    )


def _covered(ranges: tuple[tuple[int, int], ...]) -> int:
    """Positions in any of the ranges, each counted once."""
    count, reached = 0, 0
    for begin, end in sorted(ranges):
        count += max(0, end - max(begin, reached))
        reached = max(reached, end)
    return count


POLICIES: dict[str, Callable[..., H2OConfig]] = {
    "standard": H2OConfig,
    "tuned": H2OConfig.tuned,
    "paper": H2OConfig.paper,
}
"""What makes a configuration of `max_size` and changes, by the name of the policy."""
