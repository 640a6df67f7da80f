"""How a cache stores keys and values: as they are, or quantised."""

from __future__ import annotations

import dataclasses

import mlx.core as mx

BITS = (4, 8)
GROUP_SIZES = (32, 64, 128)


@dataclasses.dataclass(frozen=True)
class RowFormat:
    """Bits of keys and values; 16 stands for the dtype they come in.

    Quantised rows hold MLX's affine triples: words, scales and biases of the key, then
    those of the value, as 32-bit words.

    Args:
        key_bits: 4, 8 or 16.
        value_bits: 4, 8 or 16; 16 only if `key_bits` is.
        group_size: 32, 64 or 128 elements share a scale and a bias.
        dtype: of keys and values, which scales and biases have.

    Raises:
        ValueError: a value is not among these.

    """

    key_bits: int = 16
    value_bits: int = 16
    group_size: int = 64
    dtype: mx.Dtype = mx.float32

    def __post_init__(self) -> None:
        for name in ("key_bits", "value_bits"):
            if getattr(self, name) not in (*BITS, 16):
                raise ValueError(f"{name} = {getattr(self, name)!r} is not one of 4, 8, 16.")
        if (self.key_bits == 16) != (self.value_bits == 16):  # noqa: PLR2004
            raise ValueError(
                f"key_bits = {self.key_bits} and value_bits = {self.value_bits}: either both "
                "are 16 or neither is."
            )
        if self.group_size not in GROUP_SIZES:
            raise ValueError(f"group_size = {self.group_size!r} is not one of 32, 64, 128.")

    @property
    def is_dense(self) -> bool:
        """Whether rows are stored as they come."""
        return self.key_bits == 16  # noqa: PLR2004


@dataclasses.dataclass(frozen=True)
class MixedFormat:
    """How a cache of two precisions stores its rows.

    Args:
        heavy_bits: 4, 8 or 16 for the pool, where all but the newest tokens are.
        recent_bits: 4, 8 or 16 for the ring of the newest.
        group_size: 32, 64 or 128 elements share a scale and a bias.
        dtype: of keys and values.

    """

    heavy_bits: int = 8
    recent_bits: int = 16
    group_size: int = 64
    dtype: mx.Dtype = mx.float32

    def __post_init__(self) -> None:
        for name in ("heavy_bits", "recent_bits"):
            if getattr(self, name) not in (*BITS, 16):
                raise ValueError(f"{name} = {getattr(self, name)!r} is not one of 4, 8, 16.")
        if self.group_size not in GROUP_SIZES:
            raise ValueError(f"group_size = {self.group_size!r} is not one of 32, 64, 128.")

    @property
    def pool(self) -> RowFormat:
        """The format of the pool's rows."""
        return RowFormat(self.heavy_bits, self.heavy_bits, self.group_size, self.dtype)

    @property
    def ring(self) -> RowFormat:
        """The format of the ring's rows."""
        return RowFormat(self.recent_bits, self.recent_bits, self.group_size, self.dtype)


DENSE = RowFormat()
