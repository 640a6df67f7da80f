"""Which dataclass reads the configuration of which model type.

Whether a type is supported, and how its keys and defaults differ from those of the class, is
told by facts/architectures.toml alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from h2o_pack.architectures import decoder, others, recurrent, windows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from h2o_pack.architectures.decoder import Decoder


@dataclass(frozen=True)
class Wrapped:
    """A language model that is described by the text_config of a model with more parts.

    inner: the model types that text_config may name besides none. alone: whether a
    configuration may have no text_config and be that of the language model.
    """

    reader: type[Decoder]
    inner: tuple[str, ...]
    alone: bool = False


FAMILIES: Mapping[str, type[Decoder] | Wrapped] = MappingProxyType(
    {
        **dict.fromkeys(
            (
                "apertus", "bitnet", "cohere", "ernie4_5", "gemma", "glm4", "granite",
                "helium", "hunyuan_v1_dense", "internlm2", "mimo", "minicpm", "nanochat",
                "olmo2", "phi", "phi3", "qwen2", "qwen3", "starcoder2",
            ),
            decoder.Decoder,
        ),
        **dict.fromkeys(
            (
                "bailing_moe", "glm4_moe", "minimax", "mixtral", "olmoe", "phimoe",
                "qwen3_moe",
            ),
            decoder.Mixture,
        ),
        **dict.fromkeys(("llama", "mistral", "smollm3"), windows.Llama),
        "afmoe": windows.AfMoE,
        "baichuan_m1": windows.BaichuanM1,
        "exaone4": windows.Exaone4,
        "falcon_h1": recurrent.FalconH1,
        "gemma3": Wrapped(windows.Gemma3, ("gemma3_text",)),
        "gemma3_text": windows.Gemma3Text,
        "gemma4": Wrapped(windows.Gemma4, ("gemma4_text",)),
        "gemma4_text": windows.Gemma4,
        "gemma4_unified": Wrapped(windows.Gemma4, ("gemma4_text", "gemma4_unified_text")),
        "gpt_oss": windows.GPTOSS,
        "granitemoehybrid": recurrent.GraniteHybrid,
        "jamba": recurrent.Jamba,
        "lfm2": recurrent.LFM2,
        "lfm2_moe": recurrent.LFM2MoE,
        "lille-130m": others.Lille,
        "mimo_v2_flash": windows.MiMoV2,
        "mistral3": Wrapped(windows.Ministral3, ("ministral3", "mistral")),
        "nemotron_h": recurrent.NemotronH,
        "openelm": others.OpenELM,
        "qwen3_5": Wrapped(recurrent.GatedDelta, ("qwen3_5_text",), alone=True),
        "qwen3_5_moe": Wrapped(recurrent.GatedDelta, ("qwen3_5_moe_text",), alone=True),
        "qwen3_next": recurrent.GatedDelta,
    }
)  # fmt: skip
