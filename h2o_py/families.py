"""Models of mlx_lm that use their caches in an unusual way.

Usually an attention layer writes its new keys and values to the cache, and passes what the
cache returned to mlx_lm's `scaled_dot_product_attention`. Classes are named "file.Class" here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

_LATENT = "keeps one compressed vector per token and expands it after the cache"

WITHOUT_SCORES = {
    "bailing_hybrid.MultiLatentAttention": _LATENT,
    "bailing_moe_v3.BailingMLA": _LATENT,
    "deepseek_v3.DeepseekV3Attention": _LATENT,
    "glm4_moe_lite.Glm4MoeLiteAttention": _LATENT,
    "kimi_k3.KimiK3MLAAttention": _LATENT,
    "kimi_linear.KimiMLAAttention": _LATENT,
    "longcat_flash.LongcatFlashMLA": _LATENT,
    "mistral4.Mistral4Attention": _LATENT,
    "gemma2.Attention": "computes attention itself, to cap the logits",
    "olmo.TransformerBlock": "computes attention itself",
    "plamo.Attention": "repeats keys after the cache, in another order",
    "plamo2.Attention": "calls mx.fast.scaled_dot_product_attention directly",
    "stablelm.Attention": "converts keys after the cache",
}
"""Attention that is correct when rows are missing but does not pass through the cache."""


class UnfitFamily(NamedTuple):
    """Models that would compute wrong results with evicted rows, and why.

    mlx_lm: classes of the layers that compute wrong results, each with the attribute that
    must be true for this, or "". swift: model classes of mlx-swift-lm, which `python -m
    interface` writes to Swift. model_types: types that `h2o-pack` refuses to package;
    facts/swift_models.toml has types that it refuses for other reasons. source: upstream's
    files that show the reason.
    """

    reason: str
    source: str
    mlx_lm: dict[str, str] = {}  # noqa: RUF012  never changed
    swift: tuple[str, ...] = ()
    model_types: tuple[str, ...] = ()


UNFIT_FAMILIES = (
    UnfitFamily(
        reason="its last layers read the keys of another layer's cache, which must therefore "
        "keep all keys",
        source="mlx_lm/models/afm7.py, gemma3n.py; Gemma3nText.swift",
        mlx_lm={"afm7.KVReuseAttention": "", "gemma3n.Gemma3nAttention": "is_kv_shared_layer"},
        swift=("Gemma3nTextModel",),
        model_types=("afm7", "gemma3n"),
    ),
    UnfitFamily(
        reason="it selects rows of one cache by their index in another cache, which eviction "
        "changes",
        source="mlx_lm/models/deepseek_v32.py, minimax_m3_vl.py",
        mlx_lm={
            "deepseek_v32.DeepseekV32Attention": "",
            "minimax_m3_vl.Attention": "is_sparse_attn",
        },
        model_types=("deepseek_v32", "glm_moe_dsa", "minimax_m3_vl"),
    ),
    UnfitFamily(
        reason="it reads a layer's keys again after the layer's attention has evicted rows",
        source="mlx_lm/models/iquestloopcoder.py",
        mlx_lm={"iquestloopcoder.IQuestLoopCoderModel": ""},
        model_types=("iquestloopcoder",),
    ),
    UnfitFamily(
        reason="its block-sparse mask uses a row's index as its position",
        source="mlx_lm/models/phi3small.py",
        mlx_lm={"phi3small.Attention": "block_sparse"},
        model_types=("phi3small",),
    ),
    UnfitFamily(
        reason="mlx-swift-lm makes its mask for all tokens and not for the kept rows",
        source="mlx-swift-lm 14414441, Gemma2.swift",
        swift=("Gemma2Model",),
        model_types=("gemma2",),
    ),
    UnfitFamily(
        reason="mlx-swift-lm uses one mask for its layers with a sliding window and those "
        "without",
        source="mlx-swift-lm 14414441, Exaone4.swift; fit where no layer has a window",
        swift=("Exaone4Model",),
    ),
    UnfitFamily(
        reason="it denoises text in blocks, and removes each block from the cache again",
        source="mlx-swift-lm 14414441, NemotronLabsDiffusion.swift",
        swift=("NemotronLabsDiffusionModel",),
        model_types=("nemotron_labs_diffusion",),
    ),
)

UNFIT = {
    layer: (family.reason, attribute)
    for family in UNFIT_FAMILIES
    for layer, attribute in family.mlx_lm.items()
}
"""Attention that is wrong when rows are missing: the reason, and the attribute of the layer
that must be true for the attention to be wrong, or "" if it always is."""


ONE_MASK = frozenset(
    {
        "bailing_hybrid", "bailing_moe_v3", "deepseek_v3", "gemma2", "glm4_moe_lite", "kimi_k3",
        "kimi_linear", "longcat_flash", "longcat_flash_ngram", "phi3small",
    }
)  # fmt: skip
"""Files that make one mask from the first cache and pass it to all layers, which must therefore
have the same number of rows."""


def shares_one_mask(model: Any) -> bool:
    """Whether all layers must have the same number of rows."""
    return any(name.partition(".")[0] in ONE_MASK for name, _ in _named_modules(model))


def why_unfit(model: Any) -> str | None:
    """Return why a model cannot use H2O caches; None if it can."""
    for name, module in _named_modules(model):
        reason, attribute = UNFIT.get(name, ("", ""))
        if reason and (not attribute or getattr(module, attribute)):
            return reason
        if getattr(module, "pipeline_size", 1) > 1:
            return "a pipeline over several machines overwrites the keys of its caches"
    return None


def why_without_scores(model: Any) -> str | None:
    """Return why the caches get no scores from the model's attention; None if they do."""
    reasons = (WITHOUT_SCORES.get(name) for name, _ in _named_modules(model))
    return next((reason for reason in reasons if reason is not None), None)


def _named_modules(model: Any) -> Iterator[tuple[str, Any]]:
    for module in model.modules() if hasattr(model, "modules") else ():
        kind = type(module)
        yield f"{kind.__module__.rpartition('.')[2]}.{kind.__name__}", module
