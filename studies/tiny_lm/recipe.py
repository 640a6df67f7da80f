"""What decides the trained weights besides the code: shapes, stages, rates, shares."""

from __future__ import annotations

from dataclasses import dataclass

from studies.tiny_lm import vocabulary


@dataclass(frozen=True)
class Architecture:
    """A small Qwen3; sizes in elements."""

    hidden: int = 192
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    feed_forward: int = 512
    vocabulary: int = vocabulary.SIZE
    context: int = 2048
    rope_theta: float = 10_000.0
    norm_epsilon: float = 1e-6

    def config(self) -> dict[str, object]:
        """Return config.json as transformers and mlx-lm read it."""
        return {
            "architectures": ["Qwen3ForCausalLM"],
            "model_type": "qwen3",
            "hidden_size": self.hidden,
            "num_hidden_layers": self.layers,
            "intermediate_size": self.feed_forward,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "rms_norm_eps": self.norm_epsilon,
            "vocab_size": self.vocabulary,
            "max_position_embeddings": self.context,
            "rope_theta": self.rope_theta,
            "rope_scaling": None,
            "tie_word_embeddings": True,
            "hidden_act": "silu",
            "attention_bias": False,
            "attention_dropout": 0.0,
            "use_sliding_window": False,
            "sliding_window": None,
            "max_window_layers": self.layers,
            "initializer_range": 0.02,
            "use_cache": True,
            "bos_token_id": None,
            "eos_token_id": vocabulary.END_OF_TEXT_ID,
            "pad_token_id": None,
            "torch_dtype": "bfloat16",
        }


@dataclass(frozen=True)
class Stage:
    """A part of training with sequences of one length; all in tokens."""

    length: int
    batch: int
    total: int

    @property
    def steps(self) -> int:
        """Optimizer steps of the stage."""
        return max(1, self.total // self.batch)


@dataclass(frozen=True)
class Recipe:
    """One training run. Rates are peaks; shares are of sequences or of progress."""

    seed: int = 0
    stages: tuple[Stage, ...] = (
        Stage(length=256, batch=4096, total=5_000_000),
        Stage(length=512, batch=4096, total=5_000_000),
        Stage(length=1024, batch=8192, total=7_000_000),
        Stage(length=2048, batch=8192, total=8_000_000),
    )
    muon_rate: float = 0.02
    adam_rate: float = 0.006
    weight_decay: float = 0.025
    warm_up_steps: int = 60
    decay_share: float = 0.5  # of the run over which the rate falls in a straight line
    last_rate: float = 0.02  # what is left of the rate at the end
    recall_share: float = 0.67
    copy_share: float = 0.10  # of sequences in the first half of the run
    late_copy_share: float = 0.03
    prose_share: float = 0.05  # of stretches of text; more learns the little prose by heart
    answer_weight: float = 3.0  # of an answer's tokens in the loss; text weighs 1
    quantised_share: float = 0.25  # the end of the run, where every other step is quantized
    bits: int = 4
    group_size: int = 64

    @property
    def steps(self) -> int:
        """Optimizer steps of the whole run."""
        return sum(stage.steps for stage in self.stages)

    @property
    def tokens(self) -> int:
        """Tokens seen in the whole run."""
        return sum(stage.steps * stage.batch for stage in self.stages)

    def shortened(self, times: float) -> Recipe:
        """Return the recipe with `times` fewer tokens in every stage, to try things."""
        stages = tuple(
            Stage(each.length, each.batch, round(each.total / times)) for each in self.stages
        )
        return Recipe(seed=self.seed, stages=stages)

    def rate(self, step: int) -> float:
        """Return the share of the peak rate at a step of the run."""
        warm = min(1.0, (step + 1) / self.warm_up_steps)
        left = 1 - step / self.steps
        if left >= self.decay_share:
            return warm
        return warm * (self.last_rate + (1 - self.last_rate) * left / self.decay_share)

    def quantizes(self, step: int) -> bool:
        """Whether a step sees the weights as the 4-bit variant will hold them."""
        return step >= (1 - self.quantised_share) * self.steps and step % 2 == 1
