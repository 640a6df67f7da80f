"""The description of a model that all stages use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from h2o_pack.results import Count, doc

LayerKind = Literal["full", "sliding", "recurrent", "none"]
DTYPES = {"bfloat16": 2, "float16": 2, "float32": 4}  # bytes of an element


@dataclass(frozen=True)
class Layer:
    """The cache of one decoder layer.

    kind: "full" attends to the whole context, so its cache evicts; "sliding" attends to the
    newest `window` tokens; "recurrent" has a state of fixed size; "none" has no cache.
    kv_heads, key_dim and value_dim (elements per head) describe the keys and values in mlx_lm's
    cache. state_bytes: bytes of one sequence's state (convolution and recurrence) in mlx_lm. A
    full or sliding layer may have a state too (falcon_h1, baichuan_m1).
    """

    kind: Annotated[LayerKind, doc("Kind of the layer; only full layers evict.")]
    kv_heads: Annotated[Count, doc("KV heads.")] = 0
    key_dim: Annotated[Count, doc("Elements of a key per head.")] = 0
    value_dim: Annotated[Count, doc("Elements of a value per head.")] = 0
    window: Annotated[Count, doc("Tokens that a sliding layer attends to.")] = 0
    state_bytes: Annotated[Count, doc("Bytes of a recurrent state.")] = 0

    @property
    def row_elements(self) -> int:
        """Elements of keys and values of one token, all heads together."""
        return self.kv_heads * (self.key_dim + self.value_dim)


@dataclass(frozen=True)
class ModelConfig:
    """The shapes of a model, and the bits of its weights."""

    model_type: Annotated[str, doc("Model type in config.json.")]
    layers: Annotated[tuple[Layer, ...], Meta(min_length=1), doc("Layers, in order.")]
    heads: Annotated[Count, doc("Query heads.")]
    hidden_size: Annotated[Count, doc("Elements of a hidden state.")]
    intermediate_size: Annotated[
        Count,
        doc(
            "Width of the widest feed-forward layer that one token passes; in a mixture of "
            "experts, experts per token times their width, plus the shared experts."
        ),
    ]
    vocabulary: Annotated[Count, doc("Tokens in the vocabulary.")]
    context: Annotated[Count, doc("Tokens that the model can attend to.")]
    dtype: Annotated[str, doc("Dtype of activations and caches: bfloat16, float16 or float32.")]
    bits: Annotated[
        Count, doc("Bits of quantized weights; 0 if weights are not quantized.")
    ] = 0
    group_size: Annotated[
        Count, doc("Group size of quantized weights; 0 if weights are not quantized.")
    ] = 0
    experts: Annotated[Count, doc("Experts of a layer; 0 without experts.")] = 0
    experts_per_token: Annotated[Count, doc("Experts that one token passes.")] = 0

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


@dataclass(frozen=True)
class Weights:
    """Sizes in bytes, from safetensors headers."""

    bytes: Annotated[Count, doc("Bytes of all tensors that inference loads.")]
    tied_embeddings: Annotated[
        bool, doc("Whether the embedding table is also the output head.")
    ]
    bytes_per_token: Annotated[
        Count,
        doc(
            "Bytes read to decode one token: all weights except experts that are not "
            "chosen, and except an embedding table that is not the output head (only one of "
            "its rows is read)."
        ),
    ]
    embedding_bytes: Annotated[Count, doc("Bytes of the embedding table.")] = 0
    head_bytes: Annotated[Count, doc("Bytes of the output head.")] = 0
    expert_bytes: Annotated[Count, doc("Bytes of all experts.")] = 0
    skipped_bytes: Annotated[
        Count, doc("Bytes in the files that do not belong to the language model.")
    ] = 0
    dtype: Annotated[
        str, doc("Dtype of activations; empty if the embedding does not show it.")
    ] = ""


@dataclass(frozen=True)
class ModelFile:
    """A file that goes into packages."""

    path: Annotated[str, doc("Path in the model's folder, with / between its parts.")]
    size: Annotated[Count, doc("Bytes of the file.")]
    sha256: Annotated[str, doc("sha256 of the file; empty if it is not known yet.")] = ""
    git_id: Annotated[
        str, doc("Git's id of the file on the hub; empty if it is in LFS or local.")
    ] = ""


@dataclass(frozen=True)
class Tensor:
    """A tensor in a header; bytes: its size in the file."""

    name: str
    dtype: str
    bytes: int
    shape: tuple[int, ...] = ()


@dataclass(frozen=True)
class Contents:
    """The content of a model's files; of weights, only the headers.

    config: config.json. index: the file of each tensor; None without an index. tensors: by
    file. files: all files that a package needs.
    """

    id: str
    commit: str
    config: Mapping[str, Any]
    index: Mapping[str, str] | None
    tensors: Mapping[str, tuple[Tensor, ...]]
    files: tuple[ModelFile, ...]

    @property
    def all_tensors(self) -> tuple[Tensor, ...]:
        """The tensors of all files."""
        return tuple(tensor for tensors in self.tensors.values() for tensor in tensors)


@dataclass(frozen=True)
class Model:
    """A model that h2o-pack can package.

    id: hub id, short name of a bundled model, or folder name. commit: the hub's commit id, ""
    for local folders. files: the files that inference needs, the model card and notices.
    folder: contains all files; None if they must be downloaded. remarks: notes for the user.
    contents: None for a model that only the catalogue describes.
    """

    id: str
    commit: str
    config: ModelConfig
    weights: Weights
    files: tuple[ModelFile, ...]
    folder: Path | None
    remarks: tuple[str, ...] = ()
    contents: Contents | None = field(default=None, compare=False, repr=False)

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(file.size for file in self.files)
