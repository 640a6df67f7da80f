"""Writes a model's chat template so that Jinja2 and the app's swift-jinja read it alike.

The text is made from Jinja2's own syntax tree, so Jinja2 has resolved trims, dashes, comments
and line ends. What swift-jinja reads otherwise is written in a form that both read alike, or it
is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import TemplateSyntaxError, nodes

from h2o_pack.errors import UserError, model_error, shown
from h2o_pack.models.texts import ChatTemplate, first_difference, sandbox
from h2o_pack.resolved.jinja.names import rename
from h2o_pack.resolved.jinja.values import WHAT_TO_DO
from h2o_pack.resolved.jinja.writer import Writer

LONGEST = 1 << 20
"""Characters of a template; the longest known ones have 30,000."""
DEEPEST = 60
"""Expressions and blocks inside each other: a thread of the app has a stack of 512 KiB."""


def canonical_template(source: str, where: str) -> str:
    """Return the canonical text of a chat template.

    where: the file that has it, for errors. Raises UserError: the template cannot be parsed, is
    too long or too deep, or has constructs that the app's engine cannot reproduce.
    """
    if len(source) > LONGEST:
        what = f"the chat template has {len(source):,} characters; the most are {LONGEST:,}"
        raise model_error(what, WHAT_TO_DO, where=where)
    try:
        tree = sandbox().parse(source)
        check_depth(tree, where)
        rename(tree)
        return Writer(tree, where).text()
    except TemplateSyntaxError as error:
        what = f"the chat template cannot be parsed: {shown(error.message)}"
        raise model_error(what, WHAT_TO_DO, where=f"{where}:{error.lineno}") from error
    except RecursionError as error:
        what = "the chat template has too many expressions inside each other"
        raise model_error(what, WHAT_TO_DO, where=where) from error


def check_depth(tree: nodes.Node, where: str) -> None:
    """Refuse a template with too many expressions or blocks inside each other."""
    level, depth = [tree], 0
    while level:
        depth += 1
        if depth > DEEPEST:
            what = f"the chat template has more than {DEEPEST} expressions inside each other"
            raise model_error(what, WHAT_TO_DO, where=f"{where}:{level[0].lineno}")
        level = [child for node in level for child in inner_nodes(node)]


def inner_nodes(node: nodes.Node) -> Iterator[nodes.Node]:
    """Return what is inside a node; a chain such as a + b + c is one node."""
    for child in node.iter_child_nodes():
        if type(child) is type(node) and isinstance(node, nodes.Add | nodes.And | nodes.Or):
            yield from inner_nodes(child)
        else:
            yield child


CONVERSATIONS = Path(__file__).with_name("conversations.json")
KEYS = (
    *("role", "content", "reasoning_content", "tool_calls", "tool_call_id", "type", "id"),
    *("function", "name", "description", "parameters", "arguments"),
    *("enum", "items", "anyOf", "properties", "required"),
)
"""The order of the keys in messages and tools; other keys come after them, by the alphabet."""


def in_order(value: Any) -> Any:
    """Return a value whose dictionaries have the order of keys that the app gives them.

    Swift's dictionaries have no order, and a template may write all that is in a tool.
    """
    if isinstance(value, dict):
        places = {key: place for place, key in enumerate(KEYS)}
        keys = sorted(value, key=lambda key: (places.get(key, len(KEYS)), key))
        return {key: in_order(value[key]) for key in keys}
    return [in_order(item) for item in value] if isinstance(value, list) else value


@dataclass(frozen=True)
class Conversation:
    """A chat with which templates are compared.

    shows: what a template can do if it renders this chat, one of `SHOWN`. prompt: whether the
    beginning of a reply is rendered too. tools: None if the chat has none. variables: options
    of templates.
    """

    name: str
    shows: str
    messages: Sequence[Mapping[str, Any]]
    prompt: bool = True
    tools: Sequence[Mapping[str, Any]] | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)


SHOWN = ("plain", "system", "turns", "thoughts", "tools", "tool results")


@cache
def conversations() -> tuple[Conversation, ...]:
    """Return the chats of conversations.json."""
    rows = json.loads(CONVERSATIONS.read_text(encoding="utf-8"))
    return tuple(Conversation(**in_order(row)) for row in rows)


@dataclass(frozen=True)
class Served:
    """What a chat template renders.

    unserved: the names of conversations that it refuses, with its reasons. Of each of `SHOWN`,
    it serves what it renders at least once.
    """

    unserved: Mapping[str, str]

    def serves(self, shown: str) -> bool:
        """Whether the template renders conversations that show this, one of `SHOWN`."""
        return any(
            chat.shows == shown and chat.name not in self.unserved for chat in conversations()
        )


def prove(original: str, canonical: str, special: Mapping[str, str], where: str) -> Served:
    """Compare two texts of a chat template over all conversations.

    special: the model's special tokens by name. where: the template's file, for errors. Raises
    UserError: the texts render a conversation differently, the template renders no plain one,
    or it exceeds the limits of time, memory or length.
    """
    chats = [
        {
            "messages": chat.messages,
            "tools": chat.tools,
            "add_generation_prompt": chat.prompt,
            **chat.variables,
        }
        for chat in conversations()
    ]
    first, second = (
        ChatTemplate(source, where, special).rendered(chats, where)
        for source in (original, canonical)
    )
    unserved = {}
    for chat, before, after in zip(conversations(), first, second, strict=True):
        if before["text"] is None:
            unserved[chat.name] = str(before["error"])
        elif before["text"] != after["text"]:
            raise different(chat, before["text"], after, where)
    if len(unserved) == len(chats) or not Served(unserved).serves("plain"):
        reason = next(iter(unserved.values()))
        what = f"the chat template refuses a user's message: {shown(reason)}"
        raise model_error(what, WHAT_TO_DO, where=where)
    return Served(unserved)


def different(
    chat: Conversation, before: str, after: Mapping[str, str | None], where: str
) -> UserError:
    """Make the error for a conversation that the canonical text renders otherwise."""
    text = after["text"]
    if text is None:
        result = f"fails: {shown(after['error'])}"
    else:
        place = first_difference(before, text)
        parts = (shown(whole[place : place + 40]) for whole in (before, text))
        result = "differs after {:,} characters: {} became {}".format(place, *parts)
    which = f"in the conversation {shown(chat.name)}"
    what = f"the chat template, written for the app, {result}, {which}"
    return model_error(what, WHAT_TO_DO, where=where)
