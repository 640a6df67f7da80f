"""Families of plain decoders that differ only in what their configuration must state."""

from __future__ import annotations

from dataclasses import dataclass

from h2o_pack.architectures.decoder import Decoder, WithHeadDim
from h2o_pack.architectures.fields import count


@dataclass(frozen=True, kw_only=True)
class Qwen2(Decoder):
    """qwen2."""

    num_key_value_heads: int = count()
    max_position_embeddings: int = count(default=32768)


@dataclass(frozen=True, kw_only=True)
class Qwen3(WithHeadDim):
    """qwen3."""

    num_key_value_heads: int = count()
    head_dim: int = count()


@dataclass(frozen=True, kw_only=True)
class Gemma(WithHeadDim):
    """gemma."""

    num_key_value_heads: int = count()
    head_dim: int = count()


@dataclass(frozen=True, kw_only=True)
class GLM4(WithHeadDim):
    """glm4."""

    num_key_value_heads: int = count()
    head_dim: int = count()
    max_position_embeddings: int = count(default=32768)


@dataclass(frozen=True, kw_only=True)
class StatesKVHeads(Decoder):
    """granite, starcoder2, minicpm, mimo and apertus: KV heads must be given."""

    num_key_value_heads: int = count()


@dataclass(frozen=True, kw_only=True)
class MiMo(StatesKVHeads):
    """mimo."""

    max_position_embeddings: int = count(default=32768)


@dataclass(frozen=True, kw_only=True)
class InternLM2(Decoder):
    """internlm2."""

    max_position_embeddings: int = count(default=32768)


@dataclass(frozen=True, kw_only=True)
class Ernie(WithHeadDim):
    """ernie4_5 and bitnet."""

    num_key_value_heads: int = count()


@dataclass(frozen=True, kw_only=True)
class Phi(Decoder):
    """phi (Phi-2)."""

    hidden_size: int = count(default=2560)
    num_hidden_layers: int = count(default=32)
    num_attention_heads: int = count(default=32)
    num_key_value_heads: int = count(default=32)
    intermediate_size: int = count(default=10240)
    vocab_size: int = count(default=51200)
    max_position_embeddings: int = count(default=2048)


@dataclass(frozen=True, kw_only=True)
class Phi3(Decoder):
    """phi3, which is Phi-3, Phi-3.5-mini and Phi-4-mini."""

    max_position_embeddings: int = count(default=131072)


@dataclass(frozen=True, kw_only=True)
class Cohere(Decoder):
    """cohere (Command R)."""

    hidden_size: int = count(default=8192)
    num_hidden_layers: int = count(default=40)
    num_attention_heads: int = count(default=64)
    num_key_value_heads: int = count(default=64)
    intermediate_size: int = count(default=22528)
    vocab_size: int = count(default=256000)


@dataclass(frozen=True, kw_only=True)
class NanoChat(Decoder):
    """nanochat."""

    hidden_size: int = count(default=1280)
    num_hidden_layers: int = count(default=20)
    num_attention_heads: int = count(default=10)
    num_key_value_heads: int = count(default=10)
    intermediate_size: int = count(default=5120)
    vocab_size: int = count(default=65536)
    max_position_embeddings: int = count(default=2048)
