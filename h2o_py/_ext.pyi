from collections.abc import Sequence
from typing import Any

import mlx.core as mx

# The functions and classes of the compiled core. `h2o_py.fast` documents their shapes.

_Ledger = tuple[mx.array, mx.array, mx.array]
_Rows = list[mx.array]
_Mask = mx.array | str | None

class CacheConfig:
    def __init__(
        self,
        policy: object,  # has the attributes of H2OConfig
        *,
        key_bits: int,
        value_bits: int,
        group_size: int,
        dtype: mx.Dtype,
        recent_bits: int,
        rotated: bool,
    ) -> None: ...

def scaled_dot_product_attention_with_scores(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    *,
    scale: float,
    mask: _Mask = None,
    sinks: mx.array | None = None,
) -> tuple[mx.array, mx.array]: ...
def scaled_dot_product_attention_quantized_with_scores(
    queries: mx.array,
    keys: list[mx.array],
    values: list[mx.array],
    *,
    scale: float,
    key_bits: int,
    value_bits: int,
    group_size: int,
    mask: _Mask = None,
    sinks: mx.array | None = None,
) -> tuple[mx.array, mx.array]: ...
def make_ledger(batch: int, kv_heads: int, config: CacheConfig) -> _Ledger: ...
def cache_write(
    rows: _Rows | None,
    keys: mx.array,
    values: mx.array,
    victim: mx.array,
    offset: int,
    config: CacheConfig,
    *,
    copy: bool = False,
) -> _Rows: ...
def cache_attend(
    queries: mx.array | None,
    rows: _Rows,
    ledger: _Ledger,
    *,
    key_dim: int,
    tokens: int,
    offset: int,
    config: CacheConfig,
    scale: float = 1.0,
    mask: _Mask = None,
    sinks: mx.array | None = None,
) -> tuple[mx.array | None, _Rows, _Ledger]: ...

class SavedCache:
    """The parsed header of a saved cache."""

    offset: int
    settings: dict[str, Any]  # as H2OConfig.from_dict reads them
    row_format: tuple[int, int, int, mx.Dtype, int | None, bool]  # the fields of RowFormat
    archive: tuple[int, mx.Dtype] | None  # first position, dtype
    def __init__(self, header: str, known: str, store: str | None) -> None: ...

class LayerCache:
    ledger: _Ledger | None
    rows: _Rows | None
    archive: Any
    expects_queries: bool
    offset: int
    length: int
    unattended: int
    archive_reads: int
    nbytes: int
    is_empty: bool
    is_trimmable: bool
    dtype: mx.Dtype
    def __init__(self, config: CacheConfig, recall: object = None) -> None: ...
    @staticmethod
    def restored(saved: SavedCache, arrays: list[mx.array]) -> LayerCache: ...
    def header(self) -> str: ...
    def write(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]: ...
    def attend(
        self,
        queries: mx.array,
        *,
        scale: float,
        mask: _Mask = None,
        sinks: mx.array | None = None,
    ) -> mx.array: ...
    def settle(self) -> None: ...
    def trim(self, n: int) -> int: ...
    def share(self) -> None: ...
    def copy(self) -> LayerCache: ...
    def arrays(self) -> list[mx.array]: ...
    def views(self) -> tuple[mx.array, mx.array]: ...

def compile_kernel(kernel: str, arguments: Sequence[str]) -> None: ...
def scoring_pipelines() -> set[str]: ...
def instruction_set() -> str: ...
