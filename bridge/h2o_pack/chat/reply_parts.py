"""Separates thoughts from the text of a reply, and ends it at texts that end replies.

The results do not depend on the pieces in which a text arrives. The same rules in Swift:
ThoughtReader.swift and StopStrings.swift.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from h2o_pack.resolved.chat import Thinking


class Part(NamedTuple):
    """A piece of a reply."""

    kind: Literal["text", "thought"]
    text: str


class ReplyParts:
    """Reads the text of a reply piece by piece.

    thinking: the marks of thoughts; None if the model does not think. is_thinking: whether the
    prompt begins a thought. stops: texts that end a reply.
    """

    def __init__(
        self, thinking: Thinking | None, stops: Iterable[str] = (), *, is_thinking: bool = False
    ) -> None:
        self._thinking = thinking
        self._place = "thought" if is_thinking else "before" if thinking else "answer"
        self._drops_space = is_thinking
        self._held = self._unsure = ""
        self._stops = [stop for stop in stops if stop]
        self.is_ended = False
        """Whether a text that ends a reply was found; it and all after it are left out."""

    @property
    def is_thinking(self) -> bool:
        """Whether the next text belongs to a thought."""
        return self._place == "thought"

    def read(self, text: str) -> list[Part]:
        """Return the parts that are complete with this text."""
        self._held += text
        return self._up_to_stops(self._parts(is_over=False))

    def finish(self) -> list[Part]:
        """Return the parts that were held back."""
        parts = self._up_to_stops(self._parts(is_over=True))
        if self._unsure and not self.is_ended:
            parts.append(Part("text", self._unsure))
            self._unsure = ""
        return parts

    def _parts(self, *, is_over: bool) -> Iterator[Part]:
        """Yield what the held text contains, as far as its kind is certain."""
        while self._held:
            if self._drops_space:
                self._held = self._held.lstrip()
            if self._place == "before":
                if not self._begin(is_over=is_over):
                    return
            elif self._place == "thought":
                thought, is_certain = self._thought(is_over=is_over)
                if thought:
                    yield Part("thought", thought)
                if not is_certain:
                    return
            elif self._held:
                self._drops_space = False
                yield Part("text", self._held)
                self._held = ""

    def _begin(self, *, is_over: bool) -> bool:
        """Find out what begins with the held text; False if more text must say it."""
        rest, mark = self._held.lstrip(), self._thinking.begin if self._thinking else ""
        if rest.startswith(mark):
            self._held = rest.removeprefix(mark)
            self._place, self._drops_space = "thought", True
        elif is_over or not mark.startswith(rest):
            self._place = "answer"
        else:
            return False
        return True

    def _thought(self, *, is_over: bool) -> tuple[str, bool]:
        """Take what of the held text certainly is a thought; say whether its end was found.

        White space around a thought belongs neither to it nor to the answer.
        """
        end = self._thinking.end if self._thinking else ""
        thought, mark, after = self._held.partition(end)
        if mark or is_over:
            self._held, self._place = after, "before" if mark else "thought"
            self._drops_space = True
            return thought.rstrip(), True
        certain = thought[: len(thought) - begun(thought, end)].rstrip()
        self._held = thought[len(certain) :]
        self._drops_space = self._drops_space and not certain
        return certain, False

    def _up_to_stops(self, parts: Iterable[Part]) -> list[Part]:
        """Return parts up to the first text that ends a reply; hold back what may begin one."""
        kept: list[Part] = []
        for part in parts:
            if self.is_ended or part.kind == "thought":
                kept += [] if self.is_ended else [part]
                continue
            text = self._unsure + part.text
            ends = [place for stop in self._stops if (place := text.find(stop)) >= 0]
            self.is_ended = bool(ends)
            unsure = max((begun(text, stop) for stop in self._stops), default=0)
            end = min(ends) if ends else len(text) - unsure
            self._unsure = "" if ends else text[end:]
            if text[:end]:
                kept.append(Part("text", text[:end]))
        return kept


def begun(text: str, mark: str) -> int:
    """Return how many characters at the end of a text may be the beginning of a mark."""
    lengths = range(min(len(text), len(mark) - 1), 0, -1)
    return next((length for length in lengths if mark.startswith(text[-length:])), 0)
