"""A run's work split over the processes of mx.distributed.

Under `mlx.launch -n K -- h2o-pack eval` every process loads the model, does every K-th unit
and gives the others what it found; all then hold the same results. Alone, one process does
all of it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import mlx.core as mx
import numpy as np

from h2o_pack.files.text import usage_error

_T = TypeVar("_T")


@dataclass(frozen=True)
class Share:
    """One process among `size`; `group` is mx.distributed's."""

    rank: int = 0
    size: int = 1
    group: Any = None

    @property
    def leads(self) -> bool:
        """Whether this process writes and prints."""
        return self.rank == 0

    def mine(self, units: Sequence[_T]) -> list[tuple[int, _T]]:
        """Return the units that this process does, with their numbers."""
        return list(enumerate(units))[self.rank :: self.size]

    def gather(self, found: dict[int, Any], units: int) -> list[Any]:
        """Return what all processes found, in the order of the units.

        Args:
            found: results of this process's units: what JSON can hold.
            units: how many there are in all.

        Raises:
            UserError: no process did a unit.

        """
        # Alone too through JSON, so that one process and several give the same.
        own = json.dumps(list(found.items())).encode()
        parts = [own] if self.size == 1 else self._exchange(own)
        by_number = dict(pair for part in parts for pair in json.loads(part))
        missing = [number for number in range(units) if number not in by_number]
        if missing:
            raise usage_error(f"units {missing} were not done", "Run the command again.")
        return [by_number[number] for number in range(units)]

    def _exchange(self, own: bytes) -> list[bytes]:
        """Return every process's bytes: lengths first, then all padded to the longest."""
        cpu = mx.Device(mx.cpu)
        lengths = mx.distributed.all_gather(mx.array([len(own)]), group=self.group, stream=cpu)
        sizes: list[int] = lengths.tolist()  # type: ignore[assignment]
        padded = own + bytes(max(sizes) - len(own))
        sent = mx.array(np.frombuffer(padded, np.uint8))[None]
        got = mx.distributed.all_gather(sent, group=self.group, stream=cpu)
        rows = [np.asarray(got[i]).tobytes() for i in range(self.size)]
        return [row[:size] for row, size in zip(rows, sizes, strict=True)]


def join() -> Share:
    """Return the share of this process: all of the work where mlx.launch did not start it."""
    group = mx.distributed.init()
    return Share(group.rank(), group.size(), group)
