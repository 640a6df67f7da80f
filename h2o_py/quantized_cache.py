"""The H2O cache with quantized keys and values."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from types import ModuleType

import mlx.core as mx

from h2o_py.cache import H2OKVCache
from h2o_py.config import H2OConfig
from h2o_py.row_format import BITS, RowFormat, check_choice
from h2o_py.saved_state import read_row_format


class QuantizedH2OKVCache(H2OKVCache):
    """`H2OKVCache` whose rows are quantized once, when they are written.

    Words, scales and biases are those of `mx.quantize`; attention reads them as they are,
    and eviction moves none. There is no `bits` attribute: mlx_lm would take such a cache
    for one of its own quantized ones.

    Args:
        config: the policy, or just its `max_size`.
        bits: 4 or 8 for keys and values alike. Default: 8.
        group_size: 32, 64 or 128 elements share a scale and a bias; divides the head dims.
        key_bits: 4 or 8 for keys; overrides `bits`.
        value_bits: 4 or 8 for values; overrides `bits`. Keys 8 with values 4 is the
            compact setting.
        rotated: whether keys and values are rotated before they are quantized, which loses
            less of them at 4 bits and costs a few small operations at every step.
        backend: what computes: `h2o_py.fast` (the default) or `h2o_py.reference`.

    Raises:
        ValueError: bits or group size are none of these.

    """

    FORMAT = "h2o.quantized.1"
    _STRINGS = 6

    def __init__(
        self,
        config: H2OConfig | int,
        bits: int = 8,
        group_size: int = 64,
        *,
        key_bits: int | None = None,
        value_bits: int | None = None,
        rotated: bool = False,
        backend: ModuleType | None = None,
    ) -> None:
        super().__init__(config, backend)
        key_bits = bits if key_bits is None else key_bits
        value_bits = bits if value_bits is None else value_bits
        check_choice("key_bits", key_bits, BITS)
        check_choice("value_bits", value_bits, BITS)
        self.row_format = RowFormat(key_bits, value_bits, group_size, rotated=rotated)

    @property
    def key_bits(self) -> int:
        """Bits of a key's element."""
        return self.row_format.key_bits

    @property
    def value_bits(self) -> int:
        """Bits of a value's element."""
        return self.row_format.value_bits

    @property
    def group_size(self) -> int:
        """Elements that share a scale and a bias."""
        return self.row_format.group_size

    @property
    def rotated(self) -> bool:
        """Whether keys and values are rotated before they are quantized."""
        return self.row_format.rotated

    def _row_format_strings(self) -> tuple[str, ...]:
        row_format = {**vars(self.row_format), "dtype": str(self.row_format.dtype)}
        del row_format["recent_bits"]
        if not self.rotated:  # left out as before there was such a format
            del row_format["rotated"]
        return (json.dumps(row_format, sort_keys=True),)

    def _saved_row_format(self, values: Sequence[str]) -> RowFormat:
        saved = read_row_format(values[5], has_ring=False)
        check_choice("key_bits", saved.key_bits, BITS)
        return saved

    def _begin(self, keys: mx.array, values: mx.array) -> None:  # noqa: ARG002
        self.row_format = dataclasses.replace(self.row_format, dtype=keys.dtype)
