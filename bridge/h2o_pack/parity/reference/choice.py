"""One choice of positions for all layers, from what a prompt's last tokens look at."""

from __future__ import annotations

import mlx.core as mx

from h2o_pack.parity.reference.reading import chosen_positions
from h2o_py.config import H2OConfig


class Ballot:
    """The votes of all layers for one prompt, and the positions that they choose.

    Args:
        seen: tokens so far, the prompt's included.

    """

    def __init__(self, seen: int) -> None:
        self.seen = seen
        self._first = 0
        self._votes: mx.array | None = None
        self._configs: dict[int, H2OConfig] = {}
        self._chosen: mx.array | None = None

    def takes(self, layer: int, seen: int) -> bool:
        """Whether it is of so many tokens and still open to this layer."""
        return self.seen == seen and layer not in self._configs and self._chosen is None

    def add(self, layer: int, strongest: mx.array, first: int, config: H2OConfig) -> None:
        """Count a layer's votes: of each query head, its largest probability squared.

        Squares let the few heads that look at one place outvote the many that look
        everywhere.

        Args:
            layer: who votes.
            strongest: float32 [B, Hq, N], as `read_everything` gives it.
            first: the position of the first of N; those before it are gone.
            config: of the layer's cache.

        """
        votes = mx.square(strongest).sum(axis=1)
        if self._votes is None:
            self._first, self._votes = first, votes
        else:
            latest = max(first, self._first)
            self._votes = self._votes[:, latest - self._first :] + votes[:, latest - first :]
            self._first = latest
        self._configs[layer] = config
        mx.async_eval(self._votes)

    def chosen(self) -> mx.array:
        """The positions to hold, int32 [B, M], the best first and -1 for none."""
        if self._chosen is None:
            assert self._votes is not None  # noqa: S101  a layer asks that has voted
            configs = self._configs.values()
            self._chosen = chosen_positions(
                self._votes,
                first=self._first,
                seen=self.seen,
                rows=max(config.recall_rows for config in configs),
                config=min(configs, key=lambda config: config.recent_budget),
            )
            self._votes = None
        return self._chosen


class PromptChoice:
    """What the caches of one conversation share, so that their layers vote together.

    A copy of the caches may share it too: who votes again, or for another number of tokens,
    opens a new ballot, and each cache keeps its own until it is counted.
    """

    def __init__(self) -> None:
        self._ballot = Ballot(-1)

    def ballot(self, layer: int, seen: int) -> Ballot:
        """The ballot that a layer votes in once so many tokens were seen."""
        if not self._ballot.takes(layer, seen):
            self._ballot = Ballot(seen)
        return self._ballot
