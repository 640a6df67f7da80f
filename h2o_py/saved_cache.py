"""What mlx_lm asks of a cache that it saves and loads, in the versions that there are.

From mlx_lm 0.32 on `state` is all of it, arrays and strings. In 0.31, the last one for
Python 3.10, `state` is the arrays and `meta_state` the strings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import mlx.core as mx
from mlx_lm.models import cache as mlx_lm_cache

Cache = TypeVar("Cache", bound="SavedCache")
ONE_STATE = not hasattr(mlx_lm_cache._BaseCache, "meta_state")  # noqa: SLF001


class SavedCache(mlx_lm_cache._BaseCache):  # noqa: SLF001
    """A cache that is its `arrays` and its `header`, however mlx_lm asks for them."""

    arrays: Sequence[mx.array]
    header: Sequence[str]
    store: str | None = None
    """Folder given to go on from an archive in files; set before `header` is."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # load_prompt_cache finds classes by name in its own module.
        vars(mlx_lm_cache)[cls.__name__] = cls

    @classmethod
    def restored(
        cls: type[Cache],
        arrays: Sequence[mx.array],
        header: Sequence[str],
        store: str | None = None,
    ) -> Cache:
        """Make a cache of what another one of its class was."""
        cache = cls.__new__(cls)
        cache.store = store
        cache.arrays = arrays
        cache.header = header
        return cache

    @property
    def state(self) -> Any:
        """What mlx_lm evaluates after each chunk of a prompt, and saves."""
        return [*self.arrays, *self.header] if ONE_STATE else self.arrays

    @state.setter
    def state(self, saved: Sequence[Any]) -> None:
        self.arrays = [each for each in saved if isinstance(each, mx.array)]
        if ONE_STATE:
            self.header = [each for each in saved if isinstance(each, str)]

    if not ONE_STATE:

        @property
        def meta_state(self) -> Sequence[str]:
            """What mlx_lm 0.31 saves beside `state`."""
            return self.header

        @meta_state.setter
        def meta_state(self, saved: Sequence[str]) -> None:
            self.header = saved
