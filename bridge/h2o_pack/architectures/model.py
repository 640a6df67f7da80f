"""What the other stages know of a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pathlib import Path

LayerKind = Literal["full", "sliding", "recurrent", "none"]
DTYPES = {"bfloat16": 2, "float16": 2, "float32": 4}  # bytes of an element


@dataclass(frozen=True)
class Layer:
    """One decoder layer, as its cache sees it.

    full: attends to the whole context, so its cache evicts. sliding: attends to the newest
    `window` tokens. recurrent: keeps a state of fixed size. none: keeps nothing.

    kv_heads, key_dim and value_dim (elements, per head) are those of the keys and values
    that mlx_lm's cache holds. state_bytes is the state of one sequence (convolution and
    recurrence), as mlx_lm allocates it; a full or sliding layer has one where the layer
    keeps a state besides its keys (falcon_h1, baichuan_m1).
    """

    kind: LayerKind
    kv_heads: int = 0
    key_dim: int = 0
    value_dim: int = 0
    window: int = 0
    state_bytes: int = 0

    @property
    def row_elements(self) -> int:
        """Elements of keys and values of one token, all heads together."""
        return self.kv_heads * (self.key_dim + self.value_dim)


@dataclass(frozen=True)
class ModelConfig:
    """A model's shapes.

    layers: num_hidden_layers entries, in order. heads: query heads. intermediate_size: of
    the widest feed-forward that one token passes (a mixture: experts per token times
    their size, and the shared ones). context: max_position_embeddings. dtype: of
    activations and caches. bits and group_size: of quantised weights, 0 if they are not.
    """

    model_type: str
    layers: tuple[Layer, ...]
    heads: int
    hidden_size: int
    intermediate_size: int
    vocabulary: int
    context: int
    dtype: str
    bits: int = 0
    group_size: int = 0
    experts: int = 0
    experts_per_token: int = 0

    @property
    def evicting(self) -> tuple[int, ...]:
        """Indices of the layers whose caches evict."""
        return tuple(i for i, layer in enumerate(self.layers) if layer.kind == "full")

    @property
    def kv_heads(self) -> int:
        """KV heads of the first full-attention layer."""
        return self.layers[self.evicting[0]].kv_heads

    @property
    def head_dim(self) -> int:
        """Elements of a key of the first full-attention layer."""
        return self.layers[self.evicting[0]].key_dim

    @property
    def element_bytes(self) -> int:
        """Bytes of an element of activations and caches."""
        return DTYPES[self.dtype]

    def kinds(self) -> dict[LayerKind, int]:
        """Count the layers of each kind that there is."""
        kinds: tuple[LayerKind, ...] = ("full", "sliding", "recurrent", "none")
        counted = {kind: sum(layer.kind == kind for layer in self.layers) for kind in kinds}
        return {kind: number for kind, number in counted.items() if number}


@dataclass(frozen=True)
class Weights:
    """Sizes in bytes, from safetensors headers.

    bytes: of all tensors that inference loads. tied_embeddings: no tensor is an output
    head. bytes_per_token: read to decode one token, which is all but an embedding table
    that is no head (one row is read) and but the experts not chosen.
    embedding_bytes, head_bytes, expert_bytes: the parts that these rules are about.
    skipped_bytes: in the files, but not of the language model (a vision tower).
    dtype: of activations, as the embedding's tensors tell it; "" where they do not.
    """

    bytes: int
    tied_embeddings: bool
    bytes_per_token: int
    embedding_bytes: int = 0
    head_bytes: int = 0
    expert_bytes: int = 0
    skipped_bytes: int = 0
    dtype: str = ""


@dataclass(frozen=True)
class ModelFile:
    """A file that inference needs; path is inside the model folder, '/' separated.

    sha256 is "" where it is not known beforehand (the hub tells it of large files only).
    """

    path: str
    size: int
    sha256: str = ""


@dataclass(frozen=True)
class Model:
    """A model that h2o-pack can package.

    id: hub id, alias of an embedded model, or folder name. commit: the hub's commit id, ""
    for local folders. files: what inference needs, nothing else. folder: where all of them
    lie already, None when they must be downloaded. assumed: nothing is known of this
    architecture, and all its layers were taken for full attention because the user said so.
    remarks: sentences that a user of the model should read.
    """

    id: str
    commit: str
    config: ModelConfig
    weights: Weights
    files: tuple[ModelFile, ...]
    folder: Path | None
    assumed: bool = False
    remarks: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(file.size for file in self.files)
