"""Streamed text equals the text of all ids decoded at once."""

import random
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as some
from tokenizers import Tokenizer, decoders, models, normalizers, trainers
from tokenizers import pre_tokenizers as splitters
from transformers import PreTrainedTokenizerFast

from h2o_py import generation
from h2o_py.reply_text import ReplyText, lossless

TEXTS = [
    "    .bashrc and [1\n    , 2] or a != b ? c : d . , 'n' it 's we 've x ' y",
    "def f(x):\n\t\treturn x ** 2\n\n\n",
    "na\u00efve \u4e2d\u6587 \U0001f44d\U0001f3fd \U0001f469\u200d\U0001f467 e\u0301 "
    "\u0928\u092e\u0938\u094d\u0924\u0947 ",
]
SPACE = "\u2581"


def trained(model, trainer, decoder, splitter=None, normalizer=None):
    tokenizer = Tokenizer(model)
    tokenizer.decoder = decoder
    if splitter is not None:
        tokenizer.pre_tokenizer = splitter
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.train_from_iterator(TEXTS * 3, trainer)
    return tokenizer


def of_bytes():
    trainer = trainers.BpeTrainer(
        vocab_size=330, initial_alphabet=splitters.ByteLevel.alphabet(), show_progress=False
    )
    splitter = splitters.ByteLevel(add_prefix_space=False)
    return trained(models.BPE(), trainer, decoders.ByteLevel(), splitter)


def with_byte_fallback(*, strips=True):
    """A tokenizer like those of Llama 2 and, without `strips`, of Gemma."""
    parts = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    decoder = decoders.Sequence([*parts, decoders.Strip(" ", 1, 0)] if strips else parts)
    fallback = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=["<unk>", *fallback],
        limit_alphabet=30,
        show_progress=False,
    )
    normalizer = normalizers.Replace(" ", SPACE)
    model = models.BPE(byte_fallback=True, unk_token="<unk>")  # noqa: S106  no password
    return trained(model, trainer, decoder, normalizer=normalizer)


def of_word_pieces():
    trainer = trainers.WordPieceTrainer(
        vocab_size=150, special_tokens=["[UNK]"], show_progress=False
    )
    model = models.WordPiece(unk_token="[UNK]")  # noqa: S106  no password
    return trained(model, trainer, decoders.WordPiece(), splitters.BertPreTokenizer())


def of_pieces():
    trainer = trainers.UnigramTrainer(
        vocab_size=100,
        unk_token="<unk>",  # noqa: S106  no password
        special_tokens=["<unk>"],
        show_progress=False,
    )
    return trained(models.Unigram(), trainer, decoders.Metaspace(), splitters.Metaspace())


MAKERS = {
    "bytes": of_bytes,
    "byte fallback": with_byte_fallback,
    "byte fallback without strip": lambda: with_byte_fallback(strips=False),
    "word pieces": of_word_pieces,
    "unigram": of_pieces,
}


@pytest.fixture(
    scope="module", params=[(name, c) for name in MAKERS for c in (False, True)], ids=str
)
def tokenizer(request):
    name, cleans = request.param
    return PreTrainedTokenizerFast(
        tokenizer_object=MAKERS[name](), clean_up_tokenization_spaces=cleans
    )


def streamed(reader, ids):
    """The text of ids given out one by one, and each segment."""
    reader.reset()
    segments = []
    for number in ids:
        reader.add_token(number)
        segments.append(reader.last_segment)
    reader.finalize()
    return [*segments, reader.last_segment]


@settings(max_examples=60, deadline=None)
@given(seed=some.integers(0, 2**32), count=some.integers(0, 120))
@example(seed=37, count=24)  # ends in "( n ' t", which clean-up makes "(n't"
def test_random_ids_give_the_same_text_one_by_one_as_at_once(tokenizer, seed, count):
    chance = random.Random(seed)  # noqa: S311  it protects nothing
    known = sorted(tokenizer.get_vocab().values())
    short = [number for number in known if len(tokenizer.convert_ids_to_tokens(number)) < 3]
    ids = [chance.choice(chance.choice((known, short or known))) for _ in range(count)]
    assert "".join(streamed(ReplyText(tokenizer), ids)) == tokenizer.decode(ids)


@pytest.mark.parametrize("text", TEXTS)
def test_real_text_is_given_out_as_it_is_decoded(tokenizer, text):
    ids = tokenizer.encode(text * 5)
    reader = ReplyText(tokenizer)
    assert "".join(streamed(reader, ids)) == reader.text == tokenizer.decode(ids)


def test_text_is_given_out_as_soon_as_no_id_can_change_it():
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=of_bytes())
    segments = streamed(ReplyText(tokenizer), tokenizer.encode("def f(x) \u4e2d."))
    assert segments[0]
    assert not segments[-1]
    assert all("\ufffd" not in segment for segment in segments)


def test_the_time_of_a_long_reply_grows_with_its_length():
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=of_bytes())
    ids = tokenizer.encode(TEXTS[0] * 20)
    reader = ReplyText(tokenizer)

    def seconds(count):
        start = time.process_time()
        streamed(reader, (ids * 20)[:count])
        return time.process_time() - start

    seconds(500)
    assert seconds(8000) < 40 * max(seconds(1000), 0.005)


def test_generation_streams_what_decoding_all_tokens_gives(demo):
    model, tokenizer = demo
    prompt = tokenizer.encode("def main():\n    ")
    responses = list(
        generation.stream_generate(
            model, tokenizer, prompt, max_tokens=40, h2o_config={"max_size": 64}
        )
    )
    ids = [response.token for response in responses[:-1]]
    if responses[-1].finish_reason == "length":
        ids.append(responses[-1].token)
    assert "".join(response.text for response in responses) == tokenizer.decode(ids)


def test_the_tokenizer_that_is_given_keeps_its_own_detokenizer(demo):
    _, tokenizer = demo
    kind = type(tokenizer.detokenizer)
    assert type(lossless(tokenizer).detokenizer) is ReplyText
    assert type(tokenizer.detokenizer) is kind
