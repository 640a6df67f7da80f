"""The text that models read: kept out of the demo model's training, or a user's file."""

from __future__ import annotations

import gzip
import random
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any, Literal

from h2o_pack.errors import UserError, shown, usage_error

Part = Literal["source", "prose"]
Messages = Sequence[Mapping[str, str]]
"""Turns of a conversation: role and content."""


def held_out(part: Part = "source") -> tuple[str, ...]:
    """Read the documents beside the demo model that it was not trained on."""
    texts = gzip.decompress(_packaged(f"{part}.txt.gz")).decode().split("<|endoftext|>")
    return tuple(text for text in texts if text.strip())


def _packaged(name: str) -> bytes:
    return (resources.files("h2o_pack.models") / "demo" / "held_out" / name).read_bytes()


class Tokens:
    """Documents as one list of token ids, from which samples take windows.

    The token that ends a text (EOS) stands before each document.
    """

    def __init__(self, tokenizer: Any, documents: Sequence[str]) -> None:
        self._tokenizer = tokenizer
        self.documents = documents
        end = getattr(tokenizer, "eos_token_id", None)
        between = [] if end is None else [int(end)]
        ids: list[int] = []
        for document in documents:
            ids += [*between, *self.encode(document)]
        self.ids = ids
        """The ids of all documents, with the token that ends a text before each of them."""
        self.first = beginning(tokenizer, list(tokenizer.encode("a")))
        """The token that the tokenizer puts before a text (BOS), as a list; [] if none."""

    def encode(self, text: str) -> list[int]:
        """Return a text's token ids, without the tokens that the tokenizer adds before it."""
        # Not verbose: a text may be longer than the context, because it is read in pieces.
        return list(self._tokenizer.encode(text, add_special_tokens=False, verbose=False))

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of token ids."""
        text: str = self._tokenizer.decode(list(ids))
        return text

    def chat(self, messages: Messages, *, reply: bool = False) -> str:
        """Return a conversation as the model's chat template writes it.

        If the template accepts no system message or no tool's output, these become messages of
        the user. reply: whether to begin the model's turn at the end. Raises UserError: the
        model has no chat template, or the template refuses the messages.
        """
        if not getattr(self._tokenizer, "chat_template", None):
            raise usage_error(
                "the model has no chat template", "Choose a model that was trained to chat."
            )
        plain = [{**m, "role": "user"} if m["role"] in _RARE else m for m in messages]
        refused: Exception | None = None
        for form in (list(messages), plain, _joined(plain)):
            try:
                text: str = self._tokenizer.apply_chat_template(
                    form, tokenize=False, add_generation_prompt=reply
                )
            except Exception as error:  # noqa: BLE001 - a template's code may raise anything
                refused = error
            else:
                return text
        raise usage_error(
            f"the model's chat template refuses a conversation: {shown(str(refused))}",
            "Choose another model.",
        )

    def window(self, start: int, length: int) -> list[int]:
        """Return `length` ids from index `start` on, and after the last id from the first on.

        Raises UserError: there are fewer than `length` ids.
        """
        if len(self.ids) < length:
            raise too_short(len(self.ids), length)
        start %= len(self.ids)
        piece = self.ids[start : start + length]
        return piece + self.ids[: length - len(piece)]


_GOLDEN = (5**0.5 - 1) / 2


def text_sample(tokens: Tokens, length: int, seed: int, number: int) -> tuple[int, ...]:
    """Return `length` ids of the text; UserError if the text is shorter."""
    start = window_start(seed, number, len(tokens.ids))
    return (*tokens.first, *tokens.window(start, length - len(tokens.first)))


def window_start(seed: int, number: int, total: int) -> int:
    """Return the index, below `total`, at which a sample's window of text begins.

    The windows of one seed are spread over the text.
    """
    first = random.Random(seed).random()  # noqa: S311  not for secrets
    return int((first + number * _GOLDEN) % 1.0 * total)


_RARE = ("system", "tool")
"""Roles that some chat templates do not accept."""


def _joined(messages: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """Join turns of the same role that follow one another."""
    joined: list[dict[str, str]] = []
    for message in messages:
        if joined and joined[-1]["role"] == message["role"]:
            joined[-1]["content"] += f"\n\n{message['content']}"
        else:
            joined.append(dict(message))
    return joined


def too_short(tokens: int, least: int) -> UserError:
    """Make the error for a text that is shorter than a sample."""
    return usage_error(
        f"the text has {tokens} tokens; a sample needs {least}",
        "Give a longer text (--text FILE) or shorter samples.",
    )


def beginning(tokenizer: Any, ids: Sequence[int]) -> list[int]:
    """Return the token that the tokenizer put before a text (BOS) as a list, [] if none."""
    first = getattr(tokenizer, "bos_token_id", None)
    return [int(first)] if first is not None and list(ids[:1]) == [first] else []
