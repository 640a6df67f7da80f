"""The table of caches that keep every token, and the simulated caches in it."""

import mlx.core as mx
import pytest

from h2o_pack.measure.text import held_out
from tools.full_caches import MAKERS, measure
from tools.turbo_quant import TurboQuantCache, codebook, turbo_quant, turbo_vector_bytes

SIZE = (1, 2, 48, 64)


@pytest.mark.parametrize(
    ("width", "published"),
    [
        (64, (-0.18745, -0.05649, 0.05649, 0.18745)),
        (128, (-0.13302, -0.03998, 0.03998, 0.13302)),
    ],
)
def test_the_codebook_is_the_published_one(width, published):
    assert codebook(width, 2) == pytest.approx(published, abs=1e-4)


@pytest.mark.parametrize(("key_bits", "value_bits"), [(16, 4), (8, 3), (4, 4)])
def test_a_prompt_is_compressed_when_the_first_token_is_generated(key_bits, value_bits):
    cache = TurboQuantCache(key_bits, value_bits)
    prompt = [mx.random.normal(SIZE, key=mx.random.key(seed)) for seed in (1, 2)]
    token = [part[:, :, -1:] * 2 for part in prompt]
    held = cache.update_and_fetch(*prompt)
    assert all(mx.array_equal(ours, given) for ours, given in zip(held, prompt, strict=True))

    first = cache.update_and_fetch(*token)
    errors = {16: (0, 0), 8: (0.001, 0.01), 4: (0.08, 0.12), 3: (0.15, 0.22)}
    for ours, given, bits in zip(first, prompt, (key_bits, value_bits), strict=True):
        difference = ours[:, :, :-1] - given
        error = mx.sqrt((difference**2).sum() / (given**2).sum()).item()
        least, most = errors[bits]
        assert least <= error <= most
    # The stored tokens do not change any more.
    second = cache.update_and_fetch(*token)
    for before, after in zip(first, second, strict=True):
        assert mx.array_equal(before, after[:, :, :-1])
        assert mx.allclose(after[:, :, -1], after[:, :, -2])


def test_keys_of_uneven_elements_get_scales():
    uneven = mx.random.normal(SIZE, key=mx.random.key(3)) * (1 + 9 * (mx.arange(64) == 5))
    cache = TurboQuantCache(4, 4)
    cache.update_and_fetch(uneven, uneven)
    rounded, values = cache.update_and_fetch(uneven[:, :, :1], uneven[:, :, :1])
    error = [((part[:, :, :-1] - uneven) ** 2).sum().item() for part in (rounded, values)]
    assert error[0] != error[1]


def test_layers_at_the_ends_keep_8_bits_where_keys_are_rotated(demo):
    model, _ = demo
    assert [cache.key_bits for cache in turbo_quant(4, 4)(model)] == [8, 8, 8, 8]
    assert [cache.key_bits for cache in turbo_quant(8, 3)(model)] == [8, 8, 8, 8]
    assert [cache.value_bits for cache in turbo_quant(8, 3)(model)] == [3, 3, 3, 3]


def test_bytes_of_a_vector():
    assert [turbo_vector_bytes(128, bits) for bits in (16, 8, 4, 3)] == [256, 136, 68, 52]


def test_the_table_compares_predictions_of_generated_tokens(demo):
    model, tokenizer = demo
    ids = tokenizer.encode(held_out("prose")[0])[:72]
    lm, swift_lm = "mlx-lm ", "mlx-swift-lm "
    names = (lm + "KVCache", lm + "QuantizedKVCache, 8 bits", "--kv 4", swift_lm + "turbo4")
    makers = {name: MAKERS[name] for name in names}
    plain, eight, ours, turbo = measure(model, ids, makers, steps=8)
    assert plain[1:3] == ("0.0000", "1.00")
    assert eight[2] == "0.53"
    assert float(eight[1]) < float(ours[1])
    assert float(ours[2]) < float(turbo[2]) < 1
    assert turbo[3:] == ("", "")
