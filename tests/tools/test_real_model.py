"""The real chat model is converted without a change to what it computes."""

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten
from mlx_lm.models.llama import Model, ModelArgs
from mlx_lm.utils import load_model
from tokenizers import Tokenizer

from tools.real_model import LAYER_NAMES, MODEL_NAMES, convert

HEADS, KV_HEADS, WIDTH, HIDDEN = 4, 2, 32, 64
TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "a", "b", "ab"]
CONTROL, NORMAL = 3, 1


@pytest.fixture
def llama():
    mx.random.seed(5)
    args = {"hidden_size": WIDTH, "num_hidden_layers": 2, "intermediate_size": HIDDEN}
    heads = {"num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS}
    return Model(
        ModelArgs(
            model_type="llama",
            **args,
            **heads,
            rms_norm_eps=1e-5,
            vocab_size=len(TOKENS),
            rope_theta=10000.0,
            tie_word_embeddings=True,
        )
    )


def in_pairs(tensor, heads):
    halves = tensor.reshape(heads, 2, tensor.shape[0] // heads // 2, -1)
    return halves.swapaxes(1, 2).reshape(tensor.shape)


def gguf_of(model, path):
    """Write a model as GGUF does: its names, and rows of q and k in pairs."""
    layer_names = {mlx: gguf for gguf, mlx in LAYER_NAMES.items()}
    model_names = {mlx: gguf for gguf, mlx in MODEL_NAMES.items()}
    tensors = {}
    for name, tensor in tree_flatten(model.parameters()):
        layer, _, kind = name.rpartition(".")
        if layer in model_names:
            tensors[f"{model_names[layer]}.{kind}"] = tensor
            continue
        _, _, number, part = layer.split(".", maxsplit=3)
        heads = {"self_attn.q_proj": HEADS, "self_attn.k_proj": KV_HEADS}.get(part)
        rows = in_pairs(tensor, heads) if heads else tensor
        tensors[f"blk.{number}.{layer_names[part]}.{kind}"] = rows
    fields = {
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "embedding_length": WIDTH,
        "block_count": 2,
        "feed_forward_length": HIDDEN,
        "vocab_size": len(TOKENS),
        "context_length": 128,
    }
    metadata = {f"llama.{name}": mx.array(value) for name, value in fields.items()}
    metadata["llama.attention.layer_norm_rms_epsilon"] = mx.array(1e-5)
    metadata["llama.rope.freq_base"] = mx.array(10000.0)
    metadata["tokenizer.ggml.tokens"] = TOKENS
    metadata["tokenizer.ggml.token_type"] = mx.array([CONTROL] * 3 + [NORMAL] * 3)
    metadata["tokenizer.ggml.merges"] = ["a b"]
    metadata["tokenizer.chat_template"] = "{{ messages }}"
    mx.save_gguf(str(path), tensors, metadata)


def test_a_converted_model_gives_the_logits_of_the_original(llama, tmp_path):
    gguf_of(llama, tmp_path / "model.gguf")
    folder = tmp_path / "converted"
    folder.mkdir()
    convert(tmp_path / "model.gguf", folder)
    converted, _ = load_model(folder)
    prompt = mx.array([[3, 4, 5, 3, 1]])
    assert mx.allclose(converted(prompt), llama(prompt), atol=1e-6)


def test_special_tokens_and_merges_reach_the_tokenizer(llama, tmp_path):
    gguf_of(llama, tmp_path / "model.gguf")
    convert(tmp_path / "model.gguf", tmp_path)
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert tokenizer.encode("ab<|im_end|>a").tokens == ["ab", "<|im_end|>", "a"]
    assert tokenizer.encode("ab<|im_end|>a").ids == [5, 2, 3]
    assert tokenizer.decode([5, 2, 3]) == "aba"
