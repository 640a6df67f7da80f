"""What to measure."""

from __future__ import annotations

from dataclasses import dataclass

from h2o_pack.files.text import usage_error

DTYPES = ("float16", "bfloat16", "float32")
HEAD_DIMS = (64, 96, 128, 256)
LEAST_CAPACITY = 128


@dataclass(frozen=True)
class Options:
    """One layer's shape, a model, and how long to measure.

    Args:
        heads: query heads (Hq).
        kv_heads: KV heads (Hkv); divides `heads`.
        head_dim: elements of a key and of a value (D), one of `HEAD_DIMS`.
        capacity: rows that a KV head keeps (C), `LEAST_CAPACITY` or more.
        dtypes: of queries, keys and values, of `DTYPES`; the first serves where one is enough.
        model: what mlx_lm loads: a folder or an id on huggingface.co; "demo" is the bundled
            demo model.
        tokens: to generate with each cache.
        quick: fewer repetitions and tokens, for a run of less than a minute.

    Raises:
        UserError: `kv_heads` does not divide `heads`.

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
        if self.heads % self.kv_heads:
            raise usage_error(
                f"--kv-heads {self.kv_heads} does not divide --heads {self.heads}",
                "Query heads share KV heads evenly.",
            )

    @property
    def repetitions(self) -> int:
        """Bursts of each cache that are measured together."""
        return 9 if self.quick else 40

    @property
    def timed_tokens(self) -> int:
        """Tokens that each cache generates on a model."""
        return min(self.tokens, 64) if self.quick else self.tokens
