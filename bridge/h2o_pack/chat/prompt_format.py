"""Turns messages into token ids, as the session of a package does.

The same rules in Swift: swift_templates/H2OSessions/Text/PromptFormat.swift.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from h2o_pack.errors import in_one_line, usage_error
from h2o_pack.models.texts import first_difference
from h2o_pack.resolved.chat import Chat, reply, user

Message = dict[str, Any]
"""A message as chat templates read it: its role and its content."""


class Opening(NamedTuple):
    """The ids of a conversation's first prompt, and how many of them are the system prompt."""

    ids: list[int]
    pinned: int


class Following(NamedTuple):
    """The next ids to read; replaced: unread ids at the end that they replace."""

    ids: list[int]
    replaced: int = 0


@dataclass(frozen=True)
class PromptFormat:
    """The format of a model's prompts: its chat template, or plain lines without one.

    tokenizer: of transformers; mlx_lm's would set variables of the template. chat: what is
    known of the template. variables: the template's variables that are set.
    """

    tokenizer: Any
    chat: Chat
    variables: Mapping[str, Any] = field(default_factory=dict)

    def opening(self, messages: Sequence[Message]) -> Opening:
        """Return the first prompt: all messages, and the beginning of a reply."""
        system = leading_system(messages)
        if not self.chat.template:
            lines = "\n".join(message["content"] for message in messages)
            alone = "".join(f"{message['content']}\n" for message in system)
            ids = self.tokenizer.encode(lines)
            return Opening(ids, first_difference(ids, self.tokenizer.encode(alone)))
        ids = self._rendered(messages)
        if not system:
            return Opening(ids, 0)
        # Two messages of a user that have no common beginning; the tests of templates use them.
        first, second = (self._rendered([*system, user(text)]) for text in ("a", "0"))
        return Opening(ids, first_difference(ids, first[: first_difference(first, second)]))

    def following(
        self,
        messages: Sequence[Message],
        first: int,
        stop: int | None,
        before: PromptFormat | None = None,
    ) -> Following:
        """Return the ids of the messages from `first` on, and of the beginning of a reply.

        The caches have read the messages before `first`, and of the last reply its text and, if
        it ended with one, the stop token. The template renders the messages behind a short
        exchange, which is then cut off: behind the real conversation, some templates would
        change earlier replies.

        stop: the stop token with which the last reply ended; None if it was cut off. before:
        the format in which the caches read, if its variables may have been others.
        """
        new = list(messages[first:])
        if not self.chat.template:
            lines = "".join(f"\n{message['content']}" for message in new)
            return Following(self.tokenizer.encode(lines, add_special_tokens=False))
        question = [*leading_system(messages), user("a")]
        if messages[first - 1]["role"] != "assistant":
            before = before or self
            begin = before.reply_begin()
            kept = len(before._rendered(question)) - begin  # noqa: SLF001
            return Following(self._rendered([*question, *new])[kept:], replaced=begin)
        # Two replies show where their text ends.
        replies = ([*question, reply(text)] for text in ("b", "0"))
        texts = [(self._rendered([*r, *new]), self._rendered(r, begins=False)) for r in replies]
        (whole, alone), (other_whole, other_alone) = texts
        rest = whole[len(whole) - common_suffix(whole, other_whole) :]
        closing = rest[: common_suffix(alone, other_alone)]
        if stop in closing:
            return Following(rest[closing.index(stop) + 1 :])
        return Following(rest)

    def reply_begin(self) -> int:
        """Return how many ids, at least 1, at a prompt's end no complete reply has."""
        if not self.chat.template:
            return 0
        opened = self._rendered([user("a")])
        longer = self._rendered([user("a"), reply("b"), user("c")])
        return max(1, len(opened) - first_difference(opened, longer))

    def opens_thought(self, messages: Sequence[Message]) -> bool:
        """Whether the template itself begins a thought of the reply to the last message."""
        thinking = self.chat.thinking
        if thinking is None or not self.chat.template:
            return False
        asked = [*leading_system(messages), messages[-1]]
        opened, alone = self._rendered(asked), self._rendered(asked, begins=False)
        added = self.tokenizer.decode(opened[first_difference(opened, alone) :])
        is_open, rest = False, str(added)
        while (mark := thinking.end if is_open else thinking.begin) in rest:
            rest = rest.partition(mark)[2]
            is_open = not is_open
        return is_open

    def _rendered(self, messages: Sequence[Message], *, begins: bool = True) -> list[int]:
        try:
            ids = self.tokenizer.apply_chat_template(
                [dict(message) for message in messages],
                add_generation_prompt=begins,
                tokenize=True,
                return_dict=False,
                **self.variables,
            )
        except Exception as error:  # a template may raise anything
            raise usage_error(
                f"the chat template refuses the conversation: {in_one_line(error)}",
                "Write another message, or begin again with /reset.",
            ) from error
        return list(ids)


def leading_system(messages: Sequence[Message]) -> list[Message]:
    """Return the system prompt at the beginning of messages, if there is one."""
    return [message for message in messages[:1] if message["role"] == "system"]


def common_suffix(one: Sequence[int], other: Sequence[int]) -> int:
    """Return how many elements are equal at the end."""
    return first_difference(one[::-1], other[::-1])
