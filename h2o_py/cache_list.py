"""Layers that mlx_lm gives several caches, one of them an H2O cache."""

from __future__ import annotations

from typing import Any

from mlx_lm.models import cache as mlx_lm_cache


class H2OCacheList(mlx_lm_cache.CacheList):
    """`CacheList` that mlx_lm neither batches nor quantizes without asking its members."""

    @property
    def merge(self) -> Any:
        """Absent, unlike in `CacheList`: mlx_lm takes it as a promise to batch."""
        raise AttributeError("H2O caches cannot be merged into a batch.")

    @property
    def offset(self) -> int:
        """Tokens seen so far."""
        return max(int(cache.offset) for cache in self._evicting())

    def to_quantized(self, group_size: int = 64, bits: int = 4) -> Any:
        """Refused, as by the H2O cache in the list."""
        return self._evicting()[0].to_quantized(group_size, bits)

    def _evicting(self) -> list[Any]:
        return [cache for cache in self.caches if hasattr(cache, "attend")]


# mlx_lm.models.cache.load_prompt_cache finds classes by name in its own module.
vars(mlx_lm_cache)[H2OCacheList.__name__] = H2OCacheList
