"""Loads a model's tokenizer as the `tokenizers` library reads it."""

from __future__ import annotations

from typing import Any

from h2o_pack.errors import in_one_line, unreadable
from h2o_pack.models.files import TOKENIZER

LARGEST = 64 << 20
"""Bytes of a tokenizer.json that is read before a model is fetched."""


def load_tokenizer(data: bytes, where: str) -> Any:
    """Return the tokenizer of a tokenizer.json.

    Raises:
        UserError: it cannot be loaded.

    """
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_str(data.decode())
    except Exception as error:  # the library raises no narrower one
        what = f"{TOKENIZER} cannot be loaded: {in_one_line(error)}"
        raise unreadable(where, what) from error
