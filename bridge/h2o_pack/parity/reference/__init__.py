"""The cache in plain MLX operations: slow but readable, and the standard for tests and parity.

Like `h2o_py.fast` it is a backend of `H2OKVCache`. It never writes in place. It updates scores
query by query, as they are defined; the compiled core may use a closed form.
"""

from h2o_pack.parity.reference.attention import scaled_dot_product_attention_with_scores
from h2o_pack.parity.reference.layer import LayerCache

layer_cache = LayerCache
restored_layer_cache = LayerCache.restored

__all__ = [
    "layer_cache",
    "restored_layer_cache",
    "scaled_dot_product_attention_with_scores",
]
