"""H2O caches that remember what a model gave them and what they answered."""

# ruff: noqa: PLC0415 - imports inside functions keep `h2o-pack --help` quick

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import mlx.core as mx

    from h2o_py.config import H2OConfig


def recording_caches(config: H2OConfig, layers: int) -> list[Any]:
    """Make one recording cache for each layer, on the compiled core."""
    from h2o_py import H2OKVCache, fast

    class RecordingCache(H2OKVCache):
        """Also keeps the arrays of the step just made, under the trace's names."""

        def __init__(self) -> None:
            super().__init__(config, backend=fast)
            self.scale = 0.0
            self.step: dict[str, mx.array | None] = {}

        def update_and_fetch(
            self, keys: mx.array, values: mx.array
        ) -> tuple[mx.array, mx.array]:
            self.step = {"k": keys, "v": values}
            fetched: tuple[mx.array, mx.array] = super().update_and_fetch(keys, values)
            return fetched

        def attend(self, queries: mx.array, **options: Any) -> mx.array:
            out: mx.array = super().attend(queries, **options)
            self.scale = options["scale"]
            self.step |= {"q": queries, "out": out, "scores": self.scores}
            return out

        def taken(self) -> dict[str, mx.array]:
            """Return the step's arrays, the positions now kept among them."""
            arrays = self.step | {"positions": self.positions}
            return {what: array for what, array in arrays.items() if array is not None}

    return [RecordingCache() for _ in range(layers)]
