"""Tokenizer files that the app reads as Python does, or that are refused by name."""

import json
import random

import pytest
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    processors,
    trainers,
)
from tokenizers import pre_tokenizers as splitters

from h2o_pack.errors import ExitCode
from h2o_pack.resolved.expressions import ExpressionError, isolating, portable, quoted
from h2o_pack.resolved.python_tokenizer import prove_tokenizer, read_tokenizer
from h2o_pack.resolved.tokenizer import (
    PythonTokenizer,
    check_ids,
    flat,
    resolve_tokenizer,
    token_ids,
)
from tests.messages import refused

WHERE = "tiny"
TEXTS = [
    "Hello, world! it's 123 and 4567.",
    "a != b ? c : d . \u2167 na\u00efve \u4e2d\u6587 \U0001f44d\U0001f3fd",
    "  spaces  and\ttabs\n\n    .bashrc",
    "-a--b- x-y",
    "\x00\x07\u00ad\u200d\u2581 \u0301x",
]
ALPHABET = splitters.ByteLevel.alphabet()
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""How GPT-2's tokenizer splits a text."""


def tiny(model=None, trainer=None, **parts):
    """A tokenizer trained on `TEXTS`; parts: its normalizer, pre_tokenizer and so on."""
    tokenizer = Tokenizer(model or models.BPE())
    parts.setdefault("pre_tokenizer", splitters.ByteLevel(add_prefix_space=False))
    parts.setdefault("decoder", decoders.ByteLevel())
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    trainer = trainer or trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=ALPHABET, show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS * 3, trainer)
    return tokenizer


def content(tokenizer):
    return json.loads(tokenizer.to_str())


def resolved(tokenizer, **options):
    python = PythonTokenizer(content(tokenizer), **options)
    written = resolve_tokenizer(python, WHERE)
    return json.loads(written.tokenizer), json.loads(written.config)


def refusal(tokenizer):
    python = PythonTokenizer(content(tokenizer))
    return refused(resolve_tokenizer, python, WHERE, code=ExitCode.MODEL)


def same(tokenizer):
    """Whether the written tokenizer gives the ids and texts of the original."""
    document, _ = resolved(tokenizer)
    again = Tokenizer.from_str(json.dumps(document))
    chance = random.Random(0)  # noqa: S311
    ids = sorted(tokenizer.get_vocab().values())
    lists = [[chance.choice(ids) for _ in range(9)] for _ in range(50)]
    return [tokenizer.encode(text).ids for text in TEXTS] == [
        again.encode(text).ids for text in TEXTS
    ] and [tokenizer.decode(part) for part in lists] == [again.decode(part) for part in lists]


def word_pieces(**parts):
    model = models.WordPiece(unk_token="[UNK]")  # noqa: S106
    trainer = trainers.WordPieceTrainer(
        vocab_size=200, special_tokens=["[UNK]", "[CLS]", "[SEP]"], show_progress=False
    )
    parts = {
        "normalizer": normalizers.BertNormalizer(),
        "pre_tokenizer": splitters.BertPreTokenizer(),
        "decoder": decoders.WordPiece(),
    } | parts
    return tiny(model, trainer, **parts)


def unigrams(**parts):
    trainer = trainers.UnigramTrainer(
        vocab_size=120,
        unk_token="<unk>",  # noqa: S106
        special_tokens=["<unk>"],
        show_progress=False,
    )
    parts = {"pre_tokenizer": splitters.Metaspace(), "decoder": decoders.Metaspace()} | parts
    return tiny(models.Unigram(), trainer, **parts)


SPLITS = {
    "digits one by one": [splitters.Digits(True), splitters.ByteLevel(False)],
    "digits together": [splitters.Digits(False), splitters.ByteLevel(False)],
    "punctuation": [splitters.Punctuation(), splitters.ByteLevel(False)],
    "punctuation together": [splitters.Punctuation("contiguous"), splitters.ByteLevel(False)],
    "words": [splitters.Whitespace(), splitters.ByteLevel(False, use_regex=False)],
    "text": [splitters.Split("-", "isolated"), splitters.ByteLevel(False)],
    "merged with the previous": [
        splitters.Split("-", "merged_with_previous"),
        splitters.ByteLevel(False),
    ],
    "merged with the next": [
        splitters.Split(Regex("-|a"), "merged_with_next"),
        splitters.ByteLevel(False),
    ],
    "contiguous": [splitters.Split("-", "contiguous"), splitters.ByteLevel(False)],
    "inverted": [
        splitters.Split(Regex(GPT2), "removed", invert=True),
        splitters.ByteLevel(False, use_regex=False),
    ],
    "ends of lines": [splitters.Split(Regex(r"\s+$"), "isolated"), splitters.ByteLevel(False)],
    "length": [splitters.FixedLength(3), splitters.ByteLevel(False, use_regex=False)],
    "prefix": [splitters.ByteLevel(add_prefix_space=True)],
}


@pytest.mark.parametrize("parts", SPLITS.values(), ids=SPLITS)
def test_pre_tokenizers_that_the_app_lacks_or_computes_otherwise_are_rewritten(parts):
    assert same(tiny(pre_tokenizer=splitters.Sequence(parts)))


NORMALIZERS = {
    "strip": normalizers.Strip(),
    "accents": normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()]),
    "nmt": normalizers.Nmt(),
    "text": normalizers.Replace("a", "b"),
    "bert": normalizers.BertNormalizer(lowercase=True),
    "nested": normalizers.Sequence(
        [normalizers.Sequence([normalizers.NFC()]), normalizers.Lowercase()]
    ),
}


@pytest.mark.parametrize("normalizer", NORMALIZERS.values(), ids=NORMALIZERS)
def test_normalizers_that_the_app_lacks_or_computes_otherwise_are_rewritten(normalizer):
    assert same(tiny(normalizer=normalizer))


def test_special_tokens_around_a_text_become_one_template():
    for processor in (
        processors.RobertaProcessing(("</s>", 0), ("<s>", 1)),
        processors.BertProcessing(("</s>", 0), ("<s>", 1)),
        processors.Sequence(
            [processors.ByteLevel(), processors.BertProcessing(("</s>", 0), ("<s>", 1))]
        ),
    ):
        tokenizer = tiny(
            trainer=trainers.BpeTrainer(
                initial_alphabet=ALPHABET, special_tokens=["</s>", "<s>"], show_progress=False
            )
        )
        tokenizer.post_processor = processor
        assert same(tokenizer)
        assert resolved(tokenizer)[0]["post_processor"]["type"] == "TemplateProcessing"


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (tiny, "PreTrainedTokenizerFast"),
        (unigrams, "Xlm-RobertaTokenizer"),
        (word_pieces, "DistilbertTokenizer"),
    ],
)
def test_the_class_follows_from_the_type_of_the_model(make, name):
    tokenizer = make()
    document, config = resolved(tokenizer)
    assert config["tokenizer_class"] == name
    assert config["clean_up_tokenization_spaces"] is False
    assert document["truncation"] is None


@pytest.mark.parametrize(
    ("make", "cleans", "expected"),
    [(tiny, True, False), (word_pieces, True, True), (word_pieces, False, False)],
)
def test_spaces_are_cleaned_up_only_where_python_does_so(tmp_path, make, cleans, expected):
    files = files_of(
        make(),
        {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": cleans},
    )
    python = read_tokenizer(files, WHERE)
    assert python.cleans_up is expected
    written = resolve_tokenizer(python, WHERE)
    assert json.loads(written.config)["clean_up_tokenization_spaces"] is expected
    prove_tokenizer(files, python, written, WHERE)


def files_of(tokenizer, config=None):
    files = {"tokenizer.json": tokenizer.to_str().encode()}
    if config is not None:
        files["tokenizer_config.json"] = json.dumps(config).encode()
    return files | {"config.json": b'{"model_type": "llama"}'}


def test_a_model_without_tokenizer_config_gets_one():
    files = files_of(tiny())
    python = read_tokenizer(files, WHERE)
    written = resolve_tokenizer(python, WHERE)
    assert json.loads(written.config)["tokenizer_class"] == "PreTrainedTokenizerFast"
    prove_tokenizer(files, python, written, WHERE)


def test_the_class_of_llama_is_written_as_transformers_rebuilds_it():
    tokenizer = tiny(
        models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True),  # noqa: S106
        trainers.BpeTrainer(
            special_tokens=["<unk>", "<s>", "</s>"], vocab_size=90, show_progress=False
        ),
        normalizer=normalizers.Sequence(
            [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
        ),
        pre_tokenizer=splitters.Metaspace(split=False),
        decoder=decoders.Sequence(
            [
                decoders.Replace("\u2581", " "),
                decoders.ByteFallback(),
                decoders.Fuse(),
                decoders.Strip(" ", 1, 0),
            ]
        ),
    )
    files = files_of(
        tokenizer, {"tokenizer_class": "LlamaTokenizer", "legacy": False, "bos_token": "<s>"}
    )
    files["config.json"] = b'{"model_type": "llama"}'
    python = read_tokenizer(files, WHERE)
    document = json.loads(resolve_tokenizer(python, WHERE).tokenizer)
    assert document["pre_tokenizer"] == {
        "type": "Metaspace",
        "replacement": "\u2581",
        "prepend_scheme": "first",
        "split": False,
    }
    assert python.special["bos_token"] == "<s>"  # noqa: S105
    prove_tokenizer(files, python, resolve_tokenizer(python, WHERE), WHERE)


def test_a_tokenizer_of_words_is_refused():
    trainer = trainers.WordLevelTrainer(show_progress=False)
    words = tiny(models.WordLevel(), trainer, pre_tokenizer=splitters.WhitespaceSplit())
    assert 'model: "WordLevel": the app ends when it loads the model' in refusal(words)


@pytest.mark.parametrize(
    ("parts", "what"),
    [
        (
            {"pre_tokenizer": splitters.UnicodeScripts()},
            'pre_tokenizer: "UnicodeScripts": the app ends',
        ),
        (
            {"pre_tokenizer": splitters.CharDelimiterSplit("-")},
            '"CharDelimiterSplit": the app ends',
        ),
        ({"pre_tokenizer": splitters.Split("-", "removed")}, 'ignores behavior = "Removed"'),
        ({"pre_tokenizer": splitters.Split(Regex("(?<=a)b"), "isolated")}, 'has "(?<="'),
        ({"pre_tokenizer": splitters.Split(Regex("a*"), "isolated")}, "searches forever"),
        (
            {
                "pre_tokenizer": splitters.Sequence(
                    [splitters.Digits(), splitters.ByteLevel(True)]
                )
            },
            "puts a space before each word",
        ),
        ({"decoder": decoders.CTC()}, 'decoder: "CTC": the app ends'),
        ({"decoder": decoders.BPEDecoder()}, 'decoder: "BPEDecoder": the app ends'),
        (
            {"decoder": decoders.Strip("x", 1, 0)},
            'Strip with content = "x": the app removes spaces',
        ),
    ],
)
def test_components_that_have_no_equal_form_are_refused_by_name(parts, what):
    assert what in refusal(tiny(**parts))


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"dropout": 0.1}, "BPE with dropout = 0.1: the app never drops a merge"),
        ({"end_of_word_suffix": "</w>"}, 'BPE with end_of_word_suffix = "</w>"'),
        ({"continuing_subword_prefix": "##"}, 'BPE with continuing_subword_prefix = "##"'),
    ],
)
def test_options_that_the_app_ignores_are_refused_by_name(options, what):
    document = content(tiny())
    document["model"] |= options
    python = PythonTokenizer(document)
    assert what in refused(resolve_tokenizer, python, WHERE, code=ExitCode.MODEL)


def test_an_added_token_of_whole_words_is_refused():
    tokenizer = tiny()
    tokenizer.add_tokens([AddedToken("word", single_word=True)])
    assert (
        '"word" with single_word = true: the app finds the token inside words too'
        in refusal(tokenizer)
    )


def test_all_that_is_refused_is_named_at_once():
    text = refusal(tiny(pre_tokenizer=splitters.UnicodeScripts(), decoder=decoders.CTC()))
    assert "UnicodeScripts" in text and "CTC" in text  # noqa: PT018


def test_an_added_token_that_the_app_finds_elsewhere_is_refused_by_the_proof():
    tokenizer = tiny(normalizer=normalizers.Lowercase())
    tokenizer.add_tokens([AddedToken("<MARK>", normalized=True)])
    files = files_of(tokenizer, {"tokenizer_class": "PreTrainedTokenizerFast"})
    python = read_tokenizer(files, WHERE)
    text = refused(
        prove_tokenizer,
        files,
        python,
        resolve_tokenizer(python, WHERE),
        WHERE,
        code=ExitCode.MODEL,
    )
    assert "has no form that Python and the app read alike" in text


def test_bytes_without_a_token_are_left_out():
    document = content(tiny())
    vocabulary = document["model"]["vocab"]
    for character in "\u011d\u0104":  # they stand for the bytes 1d and 04
        del vocabulary[character]
    python = PythonTokenizer(document, {"unk_token": "<|endoftext|>"})
    written = resolve_tokenizer(python, WHERE)
    assert "unk_token" not in json.loads(written.config)
    tokenizer = Tokenizer.from_str(written.tokenizer.decode())
    assert tokenizer.encode("z\x1dQ").ids == [
        *tokenizer.encode("z").ids,
        *tokenizer.encode("Q").ids,
    ]


def test_ids_beyond_the_embedding_are_refused_with_both_numbers():
    ids = token_ids(content(tiny()))
    check_ids(ids, max(ids.values()) + 1, WHERE)
    text = refused(check_ids, ids | {"<extra>": 5000}, 4096, WHERE, code=ExitCode.MODEL)
    assert '"<extra>" the id 5,000' in text
    assert "only 4,096 tokens" in text


def test_a_sequence_without_end_is_refused():
    part = {"type": "NFC"}
    for _ in range(50):
        part = {"type": "Sequence", "normalizers": [part]}
    assert "inside each other" in refused(lambda: list(flat(part)), code=ExitCode.MODEL)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (r"\s+$", r"\s+(?=\n|\z)"),
        (r".", r"[^\n]"),
        (r"\p{N}{1,3}+", r"(?:\p{N}{1,3})+"),
        (r"a{,2}|b", r"(?:a{0,2})|b"),
        (r"\p{^L}x", r"\P{L}x"),
        (r"[\w-]", r"[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\-]"),
    ],
)
def test_expressions_are_rewritten_for_both_libraries(expression, expected):
    if expression == r"a{,2}|b":
        with pytest.raises(ExpressionError, match="searches forever"):
            portable(expression)
        return
    assert portable(expression) == expected


@pytest.mark.parametrize(
    "expression",
    [
        "^a",
        r"\ba",
        r"\h",
        "(?<=a)b",
        "(?m:.)",
        "(",
        ")",
        "[a",
        r"\p{Foo}",
        "a*",
        "(" * 99,
        "*",
        r"\x{110000}",
    ],
)
def test_expressions_that_the_libraries_read_in_different_ways_are_refused(expression):
    with pytest.raises(ExpressionError):
        portable(expression)


def pieces(splitter, text):
    return [piece for piece, _ in splitter.pre_tokenize_str(text)]


@pytest.mark.parametrize(
    "behavior", ["Isolated", "Contiguous", "MergedWithPrevious", "MergedWithNext"]
)
def test_each_behavior_equals_isolated_matches_of_another_expression(behavior):
    names = {"MergedWithPrevious": "merged_with_previous", "MergedWithNext": "merged_with_next"}
    chance = random.Random(1)  # noqa: S311
    for _ in range(200):
        text = "".join(chance.choice("ab-+ \n") for _ in range(chance.randint(0, 12)))
        for expression in (quoted("-"), "-+|\\+", "a-"):
            own = splitters.Split(Regex(expression), names.get(behavior, behavior.lower()))
            other = splitters.Split(Regex(isolating(expression, behavior)), "isolated")
            assert pieces(own, text) == pieces(other, text)
