"""Adds up a model's tensors: what inference loads, and what a decoded token reads."""

from __future__ import annotations

from collections.abc import Iterable

from h2o_pack.architectures.model import Tensor, Weights

# Parts of a tensor's name. mlx_lm's and mlx-swift-lm's `sanitize` drop what is not of the
# language model: towers for pictures and sound, heads that predict further tokens.
SKIPPED = {
    "vision_tower", "vision_model", "visual", "multi_modal_projector", "audio_tower",
    "embed_audio", "embed_vision", "mtp", "mtp_layers", "inv_freq",
}  # fmt: skip
EMBEDDINGS = {
    "embed_tokens", "wte", "tok_embeddings", "token_embeddings", "word_embeddings",
    "embeddings",
}  # fmt: skip
TABLES = {"embed_tokens_per_layer"}  # of which a token reads one row (gemma4)
HEADS = {"lm_head", "output"}
EXPERTS = {"experts", "switch_mlp", "input_linear", "output_linear"}
BLOCKS = {"layers", "h", "blocks"}
DTYPES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}


def weigh(
    tensors: Iterable[Tensor], *, experts: int = 0, experts_per_token: int = 0
) -> Weights:
    """Add up tensors.

    Args:
        tensors: of all files of the model.
        experts: in a layer of experts, 0 if there are none.
        experts_per_token: that one token passes.

    """
    sums = dict.fromkeys(("skipped", "embedding", "table", "head", "experts", "rest"), 0)
    dtype = ""
    for tensor in tensors:
        part = part_of(tensor.name, mixture=experts > 0)
        sums[part] += tensor.bytes
        if part == "embedding" and not dtype:
            dtype = activations(tensor)
    tied = sums["head"] == 0
    loaded = sum(sums.values()) - sums["skipped"]
    unread = sums["table"] + (0 if tied else sums["embedding"])
    if experts:
        unread += sums["experts"] * max(0, experts - experts_per_token) // experts
    return Weights(
        bytes=loaded,
        tied_embeddings=tied,
        bytes_per_token=loaded - unread,
        embedding_bytes=sums["embedding"],
        head_bytes=sums["head"],
        expert_bytes=sums["experts"],
        skipped_bytes=sums["skipped"],
        dtype=dtype,
    )


def part_of(name: str, *, mixture: bool) -> str:
    """Tell what a tensor is by its name."""
    parts = name.split(".")
    module = parts[-2] if len(parts) > 1 else ""
    if SKIPPED.intersection(parts):
        return "skipped"
    if BLOCKS.intersection(parts):
        chosen = mixture and EXPERTS.intersection(parts) and "shared_mlp" not in parts
        return "experts" if chosen else "rest"
    if module in TABLES:
        return "table"
    if module in EMBEDDINGS:
        return "embedding"
    return "head" if module in HEADS else "rest"


def activations(tensor: Tensor) -> str:
    """Return the dtype that an embedding's tensor gives activations, "" if it gives none.

    A quantized table is dequantized to the dtype of its scales.
    """
    leaf = tensor.name.rpartition(".")[2]
    return DTYPES.get(tensor.dtype, "") if leaf in ("weight", "scales") else ""
