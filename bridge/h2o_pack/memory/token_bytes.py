"""Bytes that a token takes in the caches that evict, by how rows are stored."""

from __future__ import annotations

from h2o_pack.architectures.model import ModelConfig
from h2o_pack.errors import UserError
from h2o_pack.memory.formulas import row_bytes
from h2o_pack.memory.storages import STORAGES, storage_of


def token_bytes(config: ModelConfig) -> dict[str, int]:
    """Return the bytes of keys and values of one token, all evicting layers together.

    Ledgers are not counted. A storage that the head dims do not allow is left out, and so
    are those whose recent tokens are stored in another way than the rest.
    """
    found = {}
    for name in (each.name for each in STORAGES.values() if each.recent is None):
        try:
            storage = storage_of(name, config)
        except UserError:
            continue
        found[name] = sum(
            row_bytes(layer, storage.heavy, storage.group_size, config.element_bytes)
            for layer in config.layers
            if layer.kind == "full"
        )
    return found


def fixed_bytes(config: ModelConfig) -> dict[str, int]:
    """Return the bytes of what does not grow: full windows, and recurrent states."""
    rows = sum(
        layer.window * layer.row_elements * config.element_bytes for layer in config.layers
    )
    return {"windows": rows, "states": sum(layer.state_bytes for layer in config.layers)}
