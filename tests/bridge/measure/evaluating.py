"""What the tests of the evaluation share: a small random model that reads demo text."""

from contextlib import contextmanager
from functools import cache

import mlx.core as mx
from mlx_lm.models.qwen3 import Model, ModelArgs
from mlx_lm.utils import load_tokenizer

from h2o_pack.measure.evaluation.runner import LoadedModel
from h2o_pack.measure.text import Tokens, held_out
from h2o_pack.progress import Silent
from tests.conftest import DEMO


class Quiet(Silent):
    """A progress that shows nothing, and counts."""

    def __init__(self):
        self.total = self.done = 0

    @contextmanager
    def bar(self, _text, total, _unit="bytes"):
        self.total += total

        def advance(amount):
            self.done += amount

        yield advance


@cache
def tokenizer():
    return load_tokenizer(DEMO)


@cache
def tokens():
    return Tokens(tokenizer(), held_out())


@cache
def random_model(layers=2):
    """Two layers with two KV heads of 64, and demo's vocabulary."""
    mx.random.seed(5)
    model = Model(
        ModelArgs(
            model_type="qwen3", hidden_size=64, num_hidden_layers=layers,
            intermediate_size=64, num_attention_heads=4, num_key_value_heads=2, head_dim=64,
            vocab_size=1024, rms_norm_eps=1e-6, rope_theta=1000.0,
            max_position_embeddings=4096, tie_word_embeddings=True,
        )
    )  # fmt: skip
    model.set_dtype(mx.bfloat16)
    mx.eval(model.parameters())
    return model


CHAT = (
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


class Chatting:
    """The demo model's tokenizer, with a chat template."""

    def __init__(self, template=CHAT):
        self.chat_template = template

    def __getattr__(self, name):
        return getattr(tokenizer(), name)

    def apply_chat_template(self, messages, **options):
        return tokenizer().apply_chat_template(
            messages, chat_template=self.chat_template, **options
        )


def loaded(model=None, budgets=None, *, chat=False):
    """What a run takes, of the random model."""
    own = Chatting() if chat else tokenizer()
    documents = held_out("prose") if chat else held_out()[:8]
    model = random_model() if model is None else model
    return LoadedModel(model, own, "random", documents, "held-out text", budgets)
