"""What is read: text that the embedded model was not trained on, or a file."""

from __future__ import annotations

import gzip
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal

Part = Literal["source", "prose"]

BETWEEN_DOCUMENTS = "<|endoftext|>"
_WORDS = "words.txt"


@dataclass(frozen=True)
class HeldOut:
    """Text and words that the embedded model was not trained on.

    Args:
        documents: whole files, each a string.
        words: of lower-case letters, for the names in facts.

    """

    documents: tuple[str, ...]
    words: tuple[str, ...]


def held_out(part: Part = "source", folder: Any = None) -> HeldOut:
    """What lies beside the embedded model, or in a folder of the same form.

    Args:
        part: source code or prose.
        folder: has `source.txt.gz`, `prose.txt.gz` and `words.txt`; the embedded model's
            by default.

    Raises:
        OSError: a file is missing.

    """
    folder = packaged() if folder is None else folder
    text = held_out_text(part, folder)
    documents = tuple(each for each in text.split(BETWEEN_DOCUMENTS) if each.strip())
    words = (folder / _WORDS).read_text(encoding="utf-8").split()
    return HeldOut(documents, tuple(words))


def held_out_text(part: Part, folder: Any) -> str:
    """All documents of a part in one string, `BETWEEN_DOCUMENTS` between them."""
    return gzip.decompress((folder / f"{part}.txt.gz").read_bytes()).decode("utf-8")


def packaged() -> Any:
    """The folder of the embedded model's held-out text; a path, or what stands for one."""
    return resources.files("h2o_pack.models") / "demo" / "held_out"


def read_text(path: Path) -> tuple[str, ...]:
    """A user's text as one document.

    Raises:
        ValueError: it cannot be read.

    """
    try:
        return (path.read_text(encoding="utf-8"),)
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(
            f"text = {str(path)!r} cannot be read ({error}). Give a file of UTF-8 text."
        ) from None


class Tokens:
    """Documents as token ids, one after another, of which windows are taken.

    Args:
        tokenizer: of the model.
        documents: what to read; the token that ends a text stands between them.

    """

    def __init__(self, tokenizer: Any, documents: Sequence[str]) -> None:
        self._tokenizer = tokenizer
        end = getattr(tokenizer, "eos_token_id", None)
        between = [] if end is None else [int(end)]
        ids: list[int] = []
        with longer_than_a_context():
            for document in documents:
                ids += [*between, *self.encode(document)]
        self.ids = ids
        """All of them, the embedded model's in the form it was trained on."""
        self.first = beginning(tokenizer, list(tokenizer.encode("a")))
        """What the tokenizer puts before any text (BOS), or nothing."""

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, without what the tokenizer puts before it."""
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids."""
        text: str = self._tokenizer.decode(list(ids))
        return text

    def window(self, start: int, length: int) -> list[int]:
        """`length` ids from `start` on, going on at the beginning when the text ends.

        Raises:
            ValueError: the whole text is shorter.

        """
        if len(self.ids) < length:
            raise ValueError(
                f"the text has {len(self.ids)} tokens; a sample needs {length}. Give a "
                "longer text (--text FILE) or shorter samples."
            )
        start %= len(self.ids)
        piece = self.ids[start : start + length]
        return piece + self.ids[: length - len(piece)]


def beginning(tokenizer: Any, ids: Sequence[int]) -> list[int]:
    """What the tokenizer put before a text (BOS), of the ids that it gave; or nothing."""
    first = getattr(tokenizer, "bos_token_id", None)
    return [int(first)] if first is not None and list(ids[:1]) == [first] else []


@contextmanager
def longer_than_a_context() -> Iterator[None]:
    """Keep transformers from warning of a text that is not read as one."""
    log = logging.getLogger("transformers.tokenization_utils_base")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)
