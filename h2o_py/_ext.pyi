import mlx.core as mx

_Ledger = tuple[mx.array, ...]

class CacheConfig:
    def __init__(
        self,
        policy: object,  # has the attributes of H2OConfig
        *,
        key_bits: int,
        value_bits: int,
        group_size: int,
        dtype: mx.Dtype,
    ) -> None: ...

def scaled_dot_product_attention_with_scores(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    *,
    scale: float,
    mask: mx.array | str | None = None,
    sinks: mx.array | None = None,
    fallback: bool = False,
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
    mask: mx.array | str | None = None,
    sinks: mx.array | None = None,
) -> tuple[mx.array, mx.array]: ...
def unpacked_rows(
    rows: mx.array, length: int, key_dim: int, config: CacheConfig
) -> tuple[mx.array, mx.array]: ...
def make_ledger(batch: int, kv_heads: int, key_dim: int, config: CacheConfig) -> _Ledger: ...
def trim_ledger(
    rows: mx.array, ledger: _Ledger, length: int, config: CacheConfig
) -> _Ledger: ...
def cache_write(
    rows: mx.array | None,
    keys: mx.array,
    values: mx.array,
    victim: mx.array,
    length: int,
    config: CacheConfig,
    *,
    copy: bool = False,
) -> mx.array: ...
def cache_attend(
    queries: mx.array | None,
    rows: mx.array,
    ledger: _Ledger,
    *,
    tokens: int,
    offset: int,
    length: int,
    config: CacheConfig,
    scale: float = 1.0,
    mask: mx.array | str | None = None,
    sinks: mx.array | None = None,
    fallback: bool = False,
) -> tuple[mx.array | None, mx.array, _Ledger]: ...

class MixedConfig:
    def __init__(
        self,
        policy: CacheConfig,
        *,
        heavy_bits: int,
        recent_bits: int,
        group_size: int,
        dtype: mx.Dtype,
    ) -> None: ...

_MixedRows = tuple[mx.array, mx.array]

def mixed_cache_write(
    rows: _MixedRows | None,
    keys: mx.array,
    values: mx.array,
    victim: mx.array,
    offset: int,
    config: MixedConfig,
    *,
    copy: bool = False,
) -> _MixedRows: ...
def mixed_cache_attend(
    queries: mx.array | None,
    rows: _MixedRows,
    ledger: _Ledger,
    *,
    tokens: int,
    offset: int,
    key_dim: int,
    value_dim: int,
    config: MixedConfig,
    scale: float = 1.0,
    mask: mx.array | str | None = None,
    sinks: mx.array | None = None,
    fallback: bool = False,
) -> tuple[mx.array | None, _MixedRows, _Ledger]: ...
def mixed_fetch(
    rows: _MixedRows, pooled: int, ringed: int, key_dim: int, config: MixedConfig
) -> tuple[mx.array, mx.array]: ...
def instruction_set() -> str: ...
def instruction_sets() -> list[str]: ...
def use_instruction_set(name: str) -> None: ...
