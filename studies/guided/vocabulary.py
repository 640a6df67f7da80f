"""A tokenizer in the manner of Qwen3: byte-level BPE, with as many tokens as one may have."""

from __future__ import annotations

import json
import random
from pathlib import Path

TOKENS = 151_643
LONGEST = 11
WIDE = 0.15
MARKS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>")


def write_tokenizer(folder: Path, seed: int, tokens: int = TOKENS) -> None:
    """Write tokenizer.json and tokenizer_config.json; `tokens` are those without marks."""
    vocabulary, merges = merged(random.Random(seed), tokens)  # noqa: S311 - repeatable
    added = [
        {"id": tokens + index, "content": mark, "special": True, "normalized": False}
        | {"single_word": False, "lstrip": False, "rstrip": False}
        for index, mark in enumerate(MARKS)
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}
    tokenizer = {
        "version": "1.0",
        "added_tokens": added,
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": byte_level | {"use_regex": True},
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": merges},
    }
    config = {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>"}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False), "utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")


def merged(draw: random.Random, count: int) -> tuple[dict[str, int], list[str]]:
    """Return {piece: id} and the merges that make it of bytes: words and wide characters."""
    letters = byte_letters()
    vocabulary = {letter: index for index, letter in enumerate(letters.values())}
    merges = []

    def merge(left: str, right: str) -> bool:
        if left + right in vocabulary:
            return False
        vocabulary[left + right] = len(vocabulary)
        merges.append(f"{left} {right}")
        return True

    continuing = [letters[byte] for byte in range(0x80, 0xC0)]
    begins = [letters[lead] + middle for lead in range(0xE4, 0xE8) for middle in continuing]
    for begin in begins:
        merge(begin[0], begin[1])
    parts = [letters[byte] for byte in b" abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"]
    while len(vocabulary) < count:
        if draw.random() < WIDE:
            merge(draw.choice(begins), draw.choice(continuing))
            continue
        left, right = (parts[int(len(parts) * draw.random() ** 2)] for _ in range(2))
        fits = len(left) + len(right) <= draw.randint(2, LONGEST)
        if fits and not right.startswith(parts[0]) and merge(left, right):
            parts.append(left + right)
    return vocabulary, merges


def byte_letters() -> dict[int, str]:
    """Return the letter that stands for each byte: those that print stand for themselves."""
    printed = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(0x100) if byte not in printed]
    shown = {byte: chr(byte) for byte in printed}
    return shown | {byte: chr(0x100 + index) for index, byte in enumerate(hidden)}
