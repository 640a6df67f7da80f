from collections.abc import Sequence

import mlx.core as mx

_Ledger = tuple[mx.array, mx.array, mx.array, mx.array, mx.array, mx.array | None]
_Rows = tuple[mx.array, mx.array | None]

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
def make_ledger(batch: int, kv_heads: int, key_dim: int, config: CacheConfig) -> _Ledger: ...
def trim_ledger(rows: _Rows, ledger: _Ledger, length: int, config: CacheConfig) -> _Ledger: ...
def cache_fetch(
    rows: _Rows, key_dim: int, offset: int, tokens: int, config: CacheConfig
) -> tuple[mx.array, mx.array]: ...
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
    tokens: int,
    offset: int,
    config: CacheConfig,
    scale: float = 1.0,
    mask: mx.array | str | None = None,
    sinks: mx.array | None = None,
    fallback: bool = False,
) -> tuple[mx.array | None, _Rows, _Ledger]: ...

class Archive:
    length: int
    first: int
    nbytes: int
    bits: int
    dtype: mx.Dtype
    group_size: int
    arrays: list[mx.array]
    mark: _Mark | None  # of the segments in files
    failure: _Failure | None
    def __init__(
        self, recall: object, group_size: int, folder: SegmentFolder | None = None
    ) -> None: ...
    def append(
        self, keys: mx.array, values: mx.array, key_sum: mx.array, config: CacheConfig
    ) -> None: ...
    def trim(self, n: int) -> None: ...
    def copy(self) -> Archive: ...
    def flush(self) -> bool: ...
    def rows(self, begin: int, end: int) -> tuple[mx.array, mx.array, mx.array]: ...

def restored_archive(
    arrays: list[mx.array],
    recall: object,
    *,
    bits: int,
    group_size: int,
    dtype: mx.Dtype,
    key_dim: int,
    first: int,
    length: int,
) -> Archive: ...

class Ballot:
    def __init__(self, seen: int) -> None: ...
    def takes(self, layer: int, seen: int) -> bool: ...
    def add(
        self, layer: int, strongest: mx.array, first: int, config: CacheConfig, recall: object
    ) -> None: ...
    def chosen(self) -> mx.array: ...

class PromptChoice:
    def __init__(self) -> None: ...

class LayerCache:
    ledger: _Ledger | None
    rows: _Rows | None
    archive: Archive | None
    chosen: mx.array | None
    expects_queries: bool
    offset: int
    length: int
    waiting: int
    since: int
    recalled: int
    nbytes: int
    is_empty: bool
    is_trimmable: bool
    dtype: mx.Dtype
    def __init__(
        self, config: CacheConfig, recall: object = None, *, in_operations: bool = False
    ) -> None: ...
    @staticmethod
    def restored(
        config: CacheConfig,
        recall: object,
        *,
        counts: tuple[int, int, int],  # offset, length, tokens that wait
        arrays: list[mx.array],
        # first, since, bits, group size, dtype
        archive: tuple[int, int, int, int, mx.Dtype] | None = None,
        mark: _Mark | None = None,
    ) -> LayerCache: ...
    def write(
        self, keys: mx.array, values: mx.array, copy: bool = False
    ) -> tuple[mx.array, mx.array]: ...
    def attend(
        self,
        queries: mx.array,
        *,
        scale: float,
        mask: mx.array | str | None = None,
        sinks: mx.array | None = None,
    ) -> mx.array: ...
    def settle(self) -> None: ...
    def finish(self) -> None: ...
    def trim(self, n: int) -> int: ...
    def share(self) -> None: ...
    def copy(self) -> LayerCache: ...
    def join(self, choice: PromptChoice, layer: int) -> None: ...
    def arrays(self) -> list[mx.array]: ...
    def views(self) -> tuple[mx.array, mx.array]: ...

def recall(
    queries: mx.array,
    keys: mx.array,
    rows: _Rows,
    ledger: _Ledger,
    archive: Archive,
    *,
    offset: int,
    config: CacheConfig,
    scale: float,
    mask: mx.array | str | None = None,
    sinks: mx.array | None = None,
    also: mx.array | None = None,
    fallback: bool = False,
) -> tuple[_Rows, _Ledger, int]: ...
def read_everything(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    rows: _Rows,
    ledger: _Ledger,
    archive: Archive,
    *,
    offset: int,
    config: CacheConfig,
    scale: float,
    mask: mx.array | str | None = None,
    sinks: mx.array | None = None,
) -> tuple[mx.array, mx.array] | None: ...
def chosen_positions(
    asked_for: mx.array,
    *,
    first: int,
    seen: int,
    rows: int,
    config: CacheConfig,
    recall: object,
) -> mx.array: ...
def bring_back(
    positions: mx.array,
    rows: _Rows,
    ledger: _Ledger,
    archive: Archive,
    *,
    offset: int,
    config: CacheConfig,
) -> tuple[_Rows, _Ledger, int]: ...
def compile_kernel(kernel: str, arguments: Sequence[str]) -> None: ...
def scoring_pipelines() -> dict[str, tuple[int, int]]: ...
def instruction_set() -> str: ...
def instruction_sets() -> list[str]: ...
def use_instruction_set(name: str) -> None: ...

_Failure = tuple[str, str, int]  # code, path, errno
_Mark = tuple[str, int, str]  # session, segments, chain

class SegmentFolder:
    def append(
        self, rows: mx.array, novelty: mx.array, key_bytes: int, row_format: str, may_wait: bool
    ) -> int: ...
    def read(self, serial: int, part: int, head: int, size: int) -> bytes | None: ...
    def drop_oldest(self) -> None: ...
    def drop_newest(self) -> None: ...
    def flush(self) -> bool: ...
    def is_written(self, serial: int) -> bool: ...
    def mark(self, newest: int) -> _Mark | None: ...
    @property
    def path(self) -> str: ...
    @property
    def serials(self) -> list[int]: ...
    @property
    def dropped(self) -> int: ...
    @property
    def failure(self) -> _Failure | None: ...

def open_segment_folder(path: str, mark: _Mark | None = None) -> SegmentFolder | _Failure: ...
def delete_archive(folder: str) -> bool | _Failure: ...
def delete_stale_archives(root: str, keep: list[str]) -> list[str] | _Failure: ...
