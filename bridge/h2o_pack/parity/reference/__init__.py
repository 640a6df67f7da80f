"""The cache in plain MLX operations: slow but readable, and the standard for tests and parity.

It has the same functions as `h2o_py.fast`, which documents their shapes. It never writes in
place. It updates scores query by query, as they are defined; the compiled core may use a closed
form.
"""

from h2o_pack.parity.reference.archive import Archive
from h2o_pack.parity.reference.cache import (
    cache_attend,
    cache_fetch,
    cache_write,
    make_ledger,
    scaled_dot_product_attention_with_scores,
    trim_ledger,
)
from h2o_pack.parity.reference.layer import LayerCache
from h2o_pack.parity.reference.recall import (
    PromptChoice,
    bring_back,
    chosen_positions,
    read_everything,
    recall,
)

layer_cache = LayerCache
restored_layer_cache = LayerCache.restored
prompt_choice = PromptChoice

__all__ = [
    "Archive",
    "bring_back",
    "cache_attend",
    "cache_fetch",
    "cache_write",
    "chosen_positions",
    "layer_cache",
    "make_ledger",
    "prompt_choice",
    "read_everything",
    "recall",
    "restored_layer_cache",
    "scaled_dot_product_attention_with_scores",
    "trim_ledger",
]
