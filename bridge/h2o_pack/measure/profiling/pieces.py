"""The samples of a profile: pieces of a file, or of text the demo model was not trained on."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

from h2o_pack.files.text import read_text
from h2o_pack.measure.text import (
    BETWEEN_DOCUMENTS,
    Part,
    beginning,
    held_out_text,
    longer_than_a_context,
    packaged,
    too_short,
)


def samples(tokenizer: Any, path: Path | None, tokens: int, count: int) -> list[list[int]]:
    """Return token ids of `count` pieces of `tokens` each, spread evenly over the text.

    A token that the tokenizer puts first (BOS) comes first in every piece.

    Raises:
        UserError: the file cannot be read, or is shorter than one piece.

    """
    texts = held_out() if path is None else (read_text(path, "Give a file of UTF-8 text."),)
    with longer_than_a_context():
        encoded = [list(tokenizer.encode(text)) for text in texts]
    begin = beginning(tokenizer, encoded[0])
    bodies = [ids[len(begin) :] for ids in encoded]
    need = tokens - len(begin)
    for ids in bodies:
        if len(ids) < need:
            raise too_short(len(ids), need)
    pieces = []
    for i in range(count):
        ids, of_this = bodies[i % len(bodies)], -(-count // len(bodies))
        last = len(ids) - need
        start = last * (i // len(bodies)) // max(1, of_this - 1) if of_this > 1 else last // 2
        pieces.append([*begin, *ids[start : start + need]])
    return pieces


def held_out() -> tuple[str, ...]:
    """Return prose and source code that the demo model was not trained on.

    The token between documents is left out: other models would read it as text.
    """
    texts = [held_out_text(part, packaged()) for part in sorted(get_args(Part))]
    return tuple(text.replace(BETWEEN_DOCUMENTS, "\n\n") for text in texts)
