"""What to measure."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

DTYPES = ("float16", "bfloat16", "float32")
HEAD_DIMS = (64, 96, 128, 256)
LEAST_CAPACITY = 128


@dataclass(frozen=True)
class Options:
    """One layer's shape, a model, and how long to measure.

    Args:
        heads: query heads (Hq).
        kv_heads: KV heads (Hkv); divides `heads`.
        head_dim: elements of a key and of a value (D).
        capacity: rows that a KV head keeps (C).
        dtypes: of queries, keys and values; the first serves where one is enough.
        model: what mlx_lm loads: a folder or an id on huggingface.co; "demo" is the
            embedded model.
        tokens: tokens to generate with each cache.
        quick: fewer repetitions and tokens, for a run of less than a minute.

    Raises:
        ValueError: a value is out of range.

    """

    heads: int = 32
    kv_heads: int = 8
    head_dim: int = 128
    capacity: int = 512
    dtypes: tuple[str, ...] = DTYPES
    model: str = "demo"
    tokens: int = 256
    quick: bool = False

    def __post_init__(self) -> None:
        if self.kv_heads < 1 or self.heads < 1 or self.heads % self.kv_heads:
            raise ValueError(
                f"kv_heads = {self.kv_heads} does not divide heads = {self.heads}. "
                "Query heads share KV heads evenly."
            )
        if self.head_dim not in HEAD_DIMS:
            allowed = ", ".join(map(str, HEAD_DIMS))
            raise ValueError(f"head_dim = {self.head_dim} is not one of {allowed}.")
        if self.capacity < LEAST_CAPACITY:
            raise ValueError(
                f"capacity = {self.capacity} is below {LEAST_CAPACITY}. So few rows are no "
                "measure of a cache."
            )
        if self.tokens < 1:
            raise ValueError(f"tokens = {self.tokens} must be 1 or more.")
        if not self.dtypes:
            raise ValueError(f"dtype is missing. Give one of {', '.join(DTYPES)}.")
        for name in self.dtypes:
            if name not in DTYPES:
                near = difflib.get_close_matches(name, DTYPES, 1)
                hint = f" Did you mean {near[0]!r}?" if near else ""
                raise ValueError(f"dtype = {name!r} is not one of {', '.join(DTYPES)}.{hint}")

    @property
    def repetitions(self) -> int:
        """Bursts of each contender that are measured together."""
        return 9 if self.quick else 40

    @property
    def timed_tokens(self) -> int:
        """Tokens that each cache generates on a model."""
        return min(self.tokens, 64) if self.quick else self.tokens
