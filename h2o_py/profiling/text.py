"""The text that is read: pieces of a file, or of text the embedded model never saw."""

from __future__ import annotations

import gzip
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

HELD_OUT = ("prose.txt.gz", "source.txt.gz")


def samples(tokenizer: Any, path: Path | None, tokens: int, count: int) -> list[list[int]]:
    """Token ids of `count` pieces of `tokens` each, spread evenly over the text.

    A token that the tokenizer puts first (BOS) comes first in every piece.

    Raises:
        ValueError: the file cannot be read, or is shorter than one piece.

    """
    texts = held_out() if path is None else [_read(path)]
    with _longer_than_a_context():
        encoded = [list(tokenizer.encode(text)) for text in texts]
    begin = _beginning(tokenizer, encoded[0])
    bodies = [ids[len(begin) :] for ids in encoded]
    need = tokens - len(begin)
    for ids in bodies:
        if len(ids) < need:
            raise ValueError(
                f"the text has {len(ids)} tokens, a sample needs {need}. Give a longer "
                "text or fewer tokens."
            )
    pieces = []
    for i in range(count):
        ids, of_this = bodies[i % len(bodies)], -(-count // len(bodies))
        last = len(ids) - need
        start = last * (i // len(bodies)) // max(1, of_this - 1) if of_this > 1 else last // 2
        pieces.append([*begin, *ids[start : start + need]])
    return pieces


def held_out() -> list[str]:
    """Prose and source code that the embedded model was not trained on."""
    folder = resources.files("h2o_pack.models") / "demo" / "held_out"
    return [gzip.decompress((folder / name).read_bytes()).decode("utf-8") for name in HELD_OUT]


@contextmanager
def _longer_than_a_context() -> Iterator[None]:
    """Keep transformers from warning of a text that is not read as one."""
    log = logging.getLogger("transformers.tokenization_utils_base")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(
            f"text = {str(path)!r} cannot be read ({error}). Give a file of UTF-8 text."
        ) from None


def _beginning(tokenizer: Any, ids: list[int]) -> list[int]:
    first = getattr(tokenizer, "bos_token_id", None)
    return ids[:1] if first is not None and ids[:1] == [first] else []
