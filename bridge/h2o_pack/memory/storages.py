"""Storages of keys and values, by the names that h2o_py and the command line use."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from h2o_pack.errors import nearest, usage_error
from h2o_pack.model import ModelConfig
from h2o_py.config import H2OConfig
from h2o_py.policy_fields import ARCHIVE_GROUP
from h2o_py.storages import (
    GROUP_SIZES,
    KV_NAMES,
    STORAGE_BITS,
    group_size_of,
    storage_name,
)

DENSE_BITS = 16


@dataclass(frozen=True)
class Storage:
    """The bits of stored keys and values; 16 bits are not quantized and keep their dtype.

    heavy: bits of a key and of a value, in all rows. recent: bits in the newest rows, if these
    have other bits; else None. group_size: elements that share a scale and a bias if rows are
    quantized. rotated: whether keys and values are rotated before they are quantized.
    """

    name: str
    heavy: tuple[int, int]
    recent: tuple[int, int] | None = None
    group_size: int = GROUP_SIZES[0]
    rotated: bool = False

    @property
    def is_dense(self) -> bool:
        """Whether no rows are quantized."""
        return self.heavy == (DENSE_BITS, DENSE_BITS) and self.recent is None


STORAGES = {
    name: Storage(
        name,
        heavy=(bits.key, bits.value),
        recent=None if bits.recent is None else (bits.recent, bits.recent),
        rotated=bits.rotated,
    )
    for name, bits in STORAGE_BITS.items()
}
"""All storages by name."""


def find_storage(name: str) -> Storage:
    """Return the storage with a name or synonym; UserError if there is none."""
    storage = STORAGES.get(storage_name(name))
    if storage is None:
        raise usage_error(
            f'--kv "{name}" is not a way to store keys and values',
            f"{nearest(name, KV_NAMES)}Choose one of {', '.join(KV_NAMES)}.",
        )
    return storage


def storage_of(name: str, config: ModelConfig, archive_bits: int = DENSE_BITS) -> Storage:
    """Return the storage with a name or synonym, with a group size for the model's heads.

    archive_bits: bits of recall's archive. Raises UserError: there is no such storage, or a
    head dimension is not a multiple of a group size.
    """
    storage = find_storage(name)
    dims = head_dims(config)
    group_size = group_size_of(dims)
    if archive_bits == DENSE_BITS or fits_archive(config):
        if storage.is_dense:
            return storage
        if group_size is not None:
            return dataclasses.replace(storage, group_size=group_size)
    option = f"--archive-bits {archive_bits}" if storage.is_dense else f"--kv {name}"
    raise usage_error(
        f"{option} quantizes in groups of {min(GROUP_SIZES)} elements, and "
        f"this model has heads of {', '.join(map(str, dims))} elements",
        f"Use {'--archive-bits 16' if storage.is_dense else '--kv 16'}.",
    )


def head_dims(config: ModelConfig) -> list[int]:
    """Return the sizes of keys and values in layers with full attention, sorted."""
    layers = [config.layers[index] for index in config.evicting]
    return sorted({dim for layer in layers for dim in (layer.key_dim, layer.value_dim)})


def fits_archive(config: ModelConfig) -> bool:
    """Whether the groups of an archive in few bits divide the model's keys and values."""
    return all(dim % ARCHIVE_GROUP == 0 for dim in head_dims(config))


def archive_bits(caches: tuple[H2OConfig | None, ...]) -> int:
    """Return the smallest number of bits in the archives of the caches; 16 without archives."""
    bits = [cache.recall.archive_bits for cache in caches if cache and cache.recall]
    return min(bits, default=DENSE_BITS)
