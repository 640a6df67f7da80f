"""Separates thoughts from the text of a reply, and ends it at texts that end replies.

The results do not depend on the pieces in which a text arrives. The same rules in Swift:
ThoughtReader.swift, HarmonyReader.swift and StopStrings.swift.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from h2o_pack.resolved.chat import HARMONY, Chat, Thinking


class Part(NamedTuple):
    """A piece of a reply."""

    kind: Literal["text", "thought"]
    text: str


def parts_of_reply(chat: Chat, *, is_thinking: bool) -> ReplyParts | HarmonyParts:
    """Return a reader for the replies of a model; is_thinking: see `ReplyParts`."""
    thinking = chat.thinking
    if thinking is not None and (thinking.begin, thinking.end) == HARMONY:
        return HarmonyParts()
    return ReplyParts(thinking, chat.stop_texts, is_thinking=is_thinking)


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


FRAME_MARKS = tuple(
    f"<|{name}|>" for name in ("start", "channel", "message", "end", "call", "return")
)
FRAME_MARK = re.compile("|".join(map(re.escape, FRAME_MARKS)))
RECIPIENT = re.compile(r"(^|[\s<>])to=")


class HarmonyParts:
    """Reads a reply of gpt-oss: a series of frames in the format Harmony.

    Each has a header with its channel, `<|message|>`, a text, and a mark that ends it. Thoughts
    are in the channel "analysis", text is in "final", or in "commentary" if it is no call of a
    tool. Text outside a frame is an answer.
    """

    is_ended = False
    """No text ends these replies, only a token."""

    def __init__(self) -> None:
        self._held = ""
        self._header: str | None = None
        self._kind: Literal["text", "thought", "unread"] = "text"

    @property
    def is_thinking(self) -> bool:
        """Whether the next text belongs to a thought."""
        return self._header is None and self._kind == "thought"

    def read(self, text: str) -> list[Part]:
        """Return the parts that are complete with this text."""
        self._held += text
        parts = self._up_to_marks()
        unsure = max(begun(self._held, mark) for mark in FRAME_MARKS)
        end = len(self._held) - unsure
        parts += self._body(self._held[:end])
        self._held = self._held[end:]
        return parts

    def finish(self) -> list[Part]:
        """Return the parts that were held back."""
        parts = [*self._up_to_marks(), *self._body(self._held)]
        self._held = ""
        return parts

    def _up_to_marks(self) -> list[Part]:
        """Return the parts before the last mark in the held text, and obey the marks."""
        parts: list[Part] = []
        while (mark := FRAME_MARK.search(self._held)) is not None:
            parts += self._body(self._held[: mark.start()])
            self._held = self._held[mark.end() :]
            self._obey(mark[0])
        return parts

    def _body(self, text: str) -> list[Part]:
        if self._header is not None:
            self._header += text
            return []
        return [Part(self._kind, text)] if text and self._kind != "unread" else []

    def _obey(self, mark: str) -> None:
        """Begin or end a header or a frame."""
        if mark in ("<|start|>", "<|channel|>"):
            self._header = (self._header or "") + mark
        elif mark == "<|message|>" and self._header is not None:
            self._kind, self._header = kind_of(self._header), None
        else:
            self._kind, self._header = "text", None


def kind_of(header: str) -> Literal["text", "thought", "unread"]:
    """Return what the frame after a header of Harmony contains."""
    channel = header.rpartition("<|channel|>")[2].lstrip()
    if channel.startswith("analysis"):
        return "thought"
    is_call = RECIPIENT.search(header) is not None
    if channel.startswith("final") or (channel.startswith("commentary") and not is_call):
        return "text"
    return "unread"


def begun(text: str, mark: str) -> int:
    """Return how many characters at the end of a text may be the beginning of a mark."""
    lengths = range(min(len(text), len(mark) - 1), 0, -1)
    return next((length for length in lengths if mark.startswith(text[-length:])), 0)
