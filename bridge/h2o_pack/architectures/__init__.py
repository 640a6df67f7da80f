"""Which dataclass reads the configuration of which model type.

One small module per family or group of families. Whether a type is supported is told by
facts/architectures.toml alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from h2o_pack.architectures import (
    dense,
    gemma3,
    llama,
    mamba,
    mixture,
    others,
    recurrent,
    windows,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from h2o_pack.architectures.decoder import Decoder


@dataclass(frozen=True)
class Wrapped:
    """A language model that is described by the text_config of a model with more parts.

    inner: the model types that text_config may name and what reads them, "" for those
    that name none; without: what reads a configuration that has no text_config, or None.
    """

    inner: Mapping[str, type[Decoder]]
    without: type[Decoder] | None = None


FAMILIES: Mapping[str, type[Decoder] | Wrapped] = MappingProxyType(
    {
        "afmoe": windows.AfMoE,
        "apertus": dense.StatesKVHeads,
        "baichuan_m1": others.BaichuanM1,
        "bailing_moe": mixture.BailingMoE,
        "bitnet": dense.Ernie,
        "cohere": dense.Cohere,
        "ernie4_5": dense.Ernie,
        "exaone4": others.Exaone4,
        "falcon_h1": mamba.FalconH1,
        "gemma": dense.Gemma,
        "gemma3": Wrapped({"": gemma3.Gemma3, "gemma3_text": gemma3.Gemma3}),
        "gemma3_text": gemma3.Gemma3Text,
        "glm4": dense.GLM4,
        "glm4_moe": mixture.GLM4MoE,
        "gpt_oss": windows.GPTOSS,
        "granite": dense.StatesKVHeads,
        "granitemoehybrid": mamba.GraniteHybrid,
        "internlm2": dense.InternLM2,
        "jamba": mamba.Jamba,
        "lfm2": recurrent.LFM2,
        "lfm2_moe": recurrent.LFM2MoE,
        "lille-130m": others.Lille,
        "llama": llama.Llama,
        "mimo": dense.MiMo,
        "mimo_v2_flash": windows.MiMoV2,
        "minicpm": dense.StatesKVHeads,
        "minimax": mixture.MiniMax,
        "mistral": llama.Llama,
        "mistral3": Wrapped(
            {"": llama.Ministral3, "ministral3": llama.Ministral3, "mistral": llama.Ministral3}
        ),
        "mixtral": mixture.Mixtral,
        "nanochat": dense.NanoChat,
        "nemotron_h": mamba.NemotronH,
        "olmo2": llama.Olmo2,
        "olmoe": mixture.OlmoE,
        "openelm": others.OpenELM,
        "phi": dense.Phi,
        "phi3": dense.Phi3,
        "phimoe": mixture.PhiMoE,
        "qwen2": dense.Qwen2,
        "qwen3": dense.Qwen3,
        "qwen3_5": Wrapped(
            {"": recurrent.Qwen35, "qwen3_5_text": recurrent.Qwen35}, recurrent.Qwen35
        ),
        "qwen3_5_moe": Wrapped(
            {"": recurrent.Qwen35, "qwen3_5_moe_text": recurrent.Qwen35}, recurrent.Qwen35
        ),
        "qwen3_moe": mixture.Qwen3MoE,
        "qwen3_next": recurrent.Qwen3Next,
        "smollm3": llama.Llama,
        "starcoder2": dense.StatesKVHeads,
    }
)
