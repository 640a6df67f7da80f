"""The tokenizer: byte-level BPE of 1,024 tokens in which every digit stands alone."""

from __future__ import annotations

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from studies.tiny_lm.corpus import END_OF_TEXT, Corpus

SIZE = 1024
END_OF_TEXT_ID = 0
PROSE_COUNTS = 2  # how often prose is counted: there is little of it


def train_tokenizer(corpus: Corpus) -> Tokenizer:
    """Learn the merges from the text that is trained on."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = corpus.training_source + corpus.training_prose * PROSE_COUNTS
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def encode(tokenizer: Tokenizer, texts: list[str]) -> list[int]:
    """Return the texts' tokens, each text after an end-of-text token."""
    tokens: list[int] = []
    for encoding in tokenizer.encode_batch(texts):
        tokens += [END_OF_TEXT_ID, *encoding.ids]
    return tokens
