"""Bytes that a token takes in the caches that evict, by how rows are stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from h2o_pack.models.model import Layer, ModelConfig

# Bits of keys and values; 0: as they come (h2o_py.models.STORAGES). A mixed cache has its
# recent tokens in one of these and all others in another.
STORAGES = {"dense": (0, 0), "8": (8, 8), "k8v4": (8, 4), "4": (4, 4)}
GROUPS = (64, 32, 128)


def token_bytes(config: ModelConfig) -> dict[str, int]:
    """Return the bytes of keys and values of one token, all evicting layers together.

    Ledgers are not counted. A storage that the head dims do not allow is left out: a
    group, 64 elements or 32, must divide them.
    """
    layers = [layer for layer in config.layers if layer.kind == "full"]
    found = {}
    for storage, bits in STORAGES.items():
        if bits[0] == 0 or all(group_of(layer) for layer in layers):
            found[storage] = sum(
                layer.kv_heads
                * (
                    vector_bytes(layer.key_dim, bits[0], group_of(layer), config.element_bytes)
                    + vector_bytes(
                        layer.value_dim, bits[1], group_of(layer), config.element_bytes
                    )
                )
                for layer in layers
            )
    return found


def group_of(layer: Layer) -> int:
    """Return the elements that share a scale and a bias, 0 if no group fits."""
    dims = (layer.key_dim, layer.value_dim)
    return next((group for group in GROUPS if not any(dim % group for dim in dims)), 0)


def vector_bytes(dim: int, bits: int, group: int, size: int) -> int:
    """Bytes of a key or a value: MLX's affine words, scales and biases, or the elements."""
    return dim * bits // 8 + 2 * size * (dim // group) if bits else dim * size


def fixed_bytes(config: ModelConfig) -> dict[str, int]:
    """Return the bytes of what does not grow: full windows, and recurrent states."""
    rows = sum(
        layer.window * layer.row_elements * config.element_bytes for layer in config.layers
    )
    return {"windows": rows, "states": sum(layer.state_bytes for layer in config.layers)}
