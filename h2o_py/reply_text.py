"""Text of token ids as they come, equal to the text of all ids decoded at once.

mlx_lm's detokenizers of streams trim the first space and write special characters otherwise
than the tokenizer. Here one rule holds: what was given out stays, and what a further id may
change is held back.
"""

from __future__ import annotations

import copy
import re
from typing import Any

from mlx_lm.tokenizer_utils import StreamingDetokenizer, TokenizerWrapper

BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
INCOMPLETE = "\ufffd"
MARGIN = 8
"""Characters at the end that the removal of spaces before punctuation may still change.

For example, " n ' t" becomes "n't"."""
WINDOW = 24
"""Ids that are decoded again for each new one; more only while text is held back."""
CONTEXT = 12
"""Ids that stay when the window moves: more than the margin, if each has one character."""


class ReplyText(StreamingDetokenizer):
    """Decodes ids one by one; `text` is what was given out so far.

    The time for n ids is linear in n, as long as they are text.

    leaves_out_special: whether special tokens have no text.
    """

    def __init__(self, tokenizer: Any, *, leaves_out_special: bool = False) -> None:
        self._tokenizer = tokenizer
        self._leaves_out_special = leaves_out_special
        cleans = getattr(tokenizer, "clean_up_tokenization_spaces", False)
        self._margin = MARGIN if cleans else 0
        self._bytes = frozenset(byte_ids(tokenizer))
        self.reset()

    def reset(self) -> None:
        """Forget all ids."""
        self.tokens: list[int] = []
        self.offset = 0
        self._parts: list[str] = []
        self._length = 0
        self._window: list[int] = []
        self._given = ""
        self._segment_start = 0

    @property
    def text(self) -> str:  # type: ignore[override]
        """All that was given out."""
        if len(self._parts) > 1:
            self._parts = ["".join(self._parts)]
        return self._parts[0] if self._parts else ""

    @property
    def last_segment(self) -> str:
        """What was given out since the last call."""
        new = self._parts[self._segment_start :]
        self._segment_start = len(self._parts)
        return "".join(new)

    def add_token(self, token: int) -> None:
        """Read one more id."""
        self.tokens.append(token)
        self._window.append(token)
        if token in self._bytes:
            return  # a run of bytes is text only as a whole
        text = self._decoded(self._window)
        incomplete = text.endswith(INCOMPLETE)
        self._give(text[: max(0, len(text) - max(incomplete, self._margin))])
        if not incomplete and len(self._window) > WINDOW:
            self._move(text)

    def finalize(self) -> None:
        """Give out what was held back: no more ids follow."""
        self._give(self._decoded(self._window))

    def _decoded(self, ids: list[int]) -> str:
        text: str = self._tokenizer.decode(ids, skip_special_tokens=self._leaves_out_special)
        return text

    def _give(self, text: str) -> None:
        """Give out the text of the window as far as it is new."""
        if len(text) > len(self._given) and text.startswith(self._given):
            self._parts.append(text[len(self._given) :])
            self._given = text

    def _move(self, text: str) -> None:
        """Keep only the last ids, if their text alone is the end of the window's."""
        context = self._window[-CONTEXT:]
        end = self._decoded(context)
        held = len(text) - len(self._given)
        if text.endswith(end) and len(end) > held and not end.isspace():
            self._window, self._given = context, end[: len(end) - held]


def byte_ids(tokenizer: Any) -> list[int]:
    """Return the ids of single bytes, if the decoder joins runs of them."""
    decoder = getattr(getattr(tokenizer, "backend_tokenizer", None), "decoder", None)
    if decoder is None or b"ByteFallback" not in bytes(decoder.__getstate__()):
        return []
    return [number for token, number in tokenizer.get_vocab().items() if BYTE.fullmatch(token)]


def lossless(tokenizer: Any) -> TokenizerWrapper:
    """Return the tokenizer with `ReplyText` as its detokenizer of streams."""
    if not isinstance(tokenizer, TokenizerWrapper):
        return TokenizerWrapper(tokenizer, ReplyText)
    wrapper = copy.copy(tokenizer)
    wrapper._detokenizer = ReplyText(tokenizer._tokenizer)  # noqa: SLF001  mlx_lm has no setter
    return wrapper
