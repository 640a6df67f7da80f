"""What a chat template does, found by rendering it: the app infers none of it.

A template is code, so these functions render only in `models.trial`'s process.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from types import MappingProxyType
from typing import Any

from h2o_pack.errors import shown
from h2o_pack.models.texts import EOS, ChatTemplate, first_difference, renderings, token_text

REPLY, USER, NEXT_USER = "zqxjk", "kqzvu", "uvzkq"
SYSTEM, THOUGHT, RESULT = "sjzxq", "tqvzj", "rzvxq"
"""Words that no template contains."""
TOOL = {
    "type": "function",
    "function": {
        "name": "find_xq",
        "description": "Finds a place.",
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string", "description": "Its name."}},
            "required": ["place"],
        },
    },
}
CALL = {
    "type": "function",
    "id": "abcdefgh1",  # Mistral's templates require nine letters and digits
    "function": {"name": "find_xq", "arguments": {"place": "x"}},
}
THOUGHT_FIELDS = ("reasoning_content", "thinking", "reasoning")
"""Fields of a reply from which templates read its thoughts."""
HARMONY = ("<|channel|>analysis<|message|>", "<|end|>")
"""The marks of gpt-oss, whose replies have further marks around each part."""
MARKS = (
    ("<think>", "</think>"),
    HARMONY,
    ("<|channel>thought", "<channel|>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<thinking>", "</thinking>"),
    ("<reasoning>", "</reasoning>"),
    ("◁think▷", "◁/think▷"),
)
"""Marks around thoughts in templates of public models."""
MARK = r"(?:<[^<>\s]+>|\[/?[A-Z_]+\])"
OPENING = re.compile(rf"({MARK})\s*\Z")
CLOSING = re.compile(rf"\A\s*({MARK})")


@dataclass(frozen=True)
class Thinking:
    """How a model thinks before it answers.

    begin, end: the marks around thoughts. variable: the template's variable that turns thinking
    on and off; None if there is none.
    """

    begin: str
    end: str
    variable: str | None = None


@dataclass(frozen=True)
class Chat:
    """What the session must know of a model's chat template.

    template: whether there is one. system: whether it writes a system prompt. tools: whether it
    writes tools, calls and their results. drops_thoughts: whether it writes a reply's thoughts
    only until the next turn. stops: ids of the tokens that end a reply. stop_texts: texts that
    end a reply, if the template ends it with plain text.
    """

    template: bool = False
    system: bool = True
    tools: bool = False
    thinking: Thinking | None = None
    drops_thoughts: bool = False
    stops: tuple[int, ...] = ()
    stop_texts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Described:
    """A model's chat, and notes for the user."""

    chat: Chat
    remarks: tuple[str, ...] = ()


def chat(**arguments: Any) -> dict[str, Any]:
    """Return what `describe_chat` does in the form of JSON; `trial` runs this."""
    return asdict(describe_chat(**arguments))


def describe_chat(
    source: str | None, special: Mapping[str, str], tokens: Mapping[str, int], own: list[int]
) -> Described:
    """Describe a chat template by the texts that it writes.

    source: the template; None if the model has none. special: the special tokens that templates
    receive, by their variables. tokens: the ids of the tokenizer's added tokens. own: ids that
    the model's files name as the end of a text.
    """
    if source is None:
        return Described(Chat(stops=tuple(sorted(set(own)))))
    template = ChatTemplate(source, "", special)
    thinking = find_thinking(template)
    stops, stop_texts, remark = find_end(template, tokens, own)
    chat = Chat(
        template=True,
        system=SYSTEM in (text_of(template, [system(SYSTEM), user(USER)]) or ""),
        tools=takes_tools(template),
        thinking=thinking,
        drops_thoughts=thinking is not None and drops_thoughts(template),
        stops=stops,
        stop_texts=stop_texts,
    )
    missing = [
        what for what, has in (("system prompt", chat.system), ("tools", chat.tools)) if not has
    ]
    takes = f"the chat template takes no {' and no '.join(missing)}: a session refuses them."
    return Described(chat, tuple(filter(None, (remark, takes if missing else ""))))


def system(text: str) -> dict[str, Any]:
    """Return a system prompt."""
    return {"role": "system", "content": text}


def user(text: str) -> dict[str, Any]:
    """Return a user's message."""
    return {"role": "user", "content": text}


def reply(text: str, **fields: Any) -> dict[str, Any]:
    """Return a reply of the model."""
    return {"role": "assistant", "content": text, **fields}


def text_of(
    template: ChatTemplate,
    messages: Sequence[Mapping[str, Any]],
    *,
    prompt: bool = False,
    tools: list[dict[str, Any]] | None = None,
    variables: Mapping[str, Any] = MappingProxyType({}),
) -> str | None:
    """Return the text of messages; None if the template refuses them.

    prompt: whether the beginning of a reply follows. variables: further variables of the
    template.
    """
    chat = {"messages": messages, "add_generation_prompt": prompt, "tools": tools, **variables}
    [result] = renderings(template.source, template.special, [chat])
    return result["text"]


def takes_tools(template: ChatTemplate) -> bool:
    """Whether the template writes a tool, a call of it and its result."""
    described = text_of(template, [user(USER)], tools=[TOOL])
    answered = text_of(
        template,
        [
            user(USER),
            reply("", tool_calls=[CALL]),
            {
                "role": "tool",
                "content": RESULT,
                "tool_call_id": CALL["id"],
                "name": "find_xq",
            },
        ],
        tools=[TOOL],
        prompt=True,
    )
    return "find_xq" in (described or "") and RESULT in (answered or "")


def drops_thoughts(template: ChatTemplate) -> bool:
    """Whether a reply's thoughts are not in the text of later turns."""
    later = [user(NEXT_USER)]
    with_thoughts = text_of(
        template, [user(USER), reply(REPLY, reasoning_content=THOUGHT), *later]
    )
    return with_thoughts is not None and with_thoughts == text_of(
        template, [user(USER), reply(REPLY), *later]
    )


def find_thinking(template: ChatTemplate) -> Thinking | None:
    """Return the marks of thoughts, and the switch; None if the model does not think."""
    ways = (written_marks, opened_marks, removed_marks, required_marks)
    marks = next(chain.from_iterable(find(template) for find in ways), None)
    if marks is None:
        return None
    return Thinking(*marks, find_switch(template))


def written_marks(template: ChatTemplate) -> Iterator[tuple[str, str]]:
    """Yield the marks that the template writes around the thoughts of a reply."""
    for name in THOUGHT_FIELDS:
        text = text_of(template, [user(USER), reply(REPLY, **{name: THOUGHT})]) or ""
        before, found, after = text.partition(THOUGHT)
        if not found or REPLY not in after:
            continue
        for begin, end in MARKS:
            if before.rstrip().endswith(begin) and after.lstrip().startswith(end):
                yield begin, end
        opening, closing = OPENING.search(before), CLOSING.match(after)
        if opening and closing and closing[1] != opening[1]:
            yield opening[1], closing[1]


def opened_marks(template: ChatTemplate) -> Iterator[tuple[str, str]]:
    """Yield the marks with which the template begins a reply, with any setting of a switch."""
    for variables in settings(template):
        texts = [
            text_of(template, [user(USER)], prompt=p, variables=variables) or ""
            for p in (False, True)
        ]
        beginning = texts[1][first_difference(*texts) :]
        yield from (pair for pair in MARKS if pair[0] in beginning)


def required_marks(template: ChatTemplate) -> Iterator[tuple[str, str]]:
    """Yield the marks that the template's own instructions tell the model to use."""
    for variables in settings(template):
        text = text_of(template, [user(USER)], variables=variables) or ""
        instructions = text.partition(USER)[0]
        yield from (pair for pair in MARKS if all(mark in instructions for mark in pair))


def removed_marks(template: ChatTemplate) -> Iterator[tuple[str, str]]:
    """Yield the marks whose content the template removes from an earlier reply."""
    for begin, end in MARKS:
        written = f"{begin}\n{THOUGHT}\n{end}\n\n{REPLY}"
        text = text_of(template, [user(USER), reply(written), user(NEXT_USER)])
        if text is not None and REPLY in text and THOUGHT not in text:
            yield begin, end


def switches(template: ChatTemplate) -> tuple[str, ...]:
    """Return the template's variables that may turn thinking on and off."""
    names = (name for name in template.variables if "think" in name.lower())
    return tuple(name for name in names if "budget" not in name.lower())


def settings(template: ChatTemplate) -> Iterator[dict[str, bool]]:
    """Yield the settings of the switches: none, and each of them on and off."""
    yield {}
    yield from ({name: on} for name in switches(template) for on in (True, False))


def find_switch(template: ChatTemplate) -> str | None:
    """Return the variable that turns thinking on and off; None if there is none."""
    for name in switches(template):
        for messages in ([user(USER)], [system(SYSTEM), user(USER)]):
            texts = [
                text_of(template, messages, prompt=True, variables={name: on})
                for on in (True, False)
            ]
            if None not in texts and texts[0] != texts[1]:
                return name
    return None


def find_end(
    template: ChatTemplate, tokens: Mapping[str, int], own: list[int]
) -> tuple[tuple[int, ...], tuple[str, ...], str]:
    """Return the ids and the texts that end a reply, and a note for the user or "".

    tokens, own: see `describe_chat`.
    """
    exchange = [user(USER), reply(REPLY)]
    alone = after(REPLY, text_of(template, exchange) or "")
    between, found, _ = after(
        REPLY, text_of(template, [*exchange, user(NEXT_USER)]) or ""
    ).partition(NEXT_USER)
    between = between if found else ""
    stops = set(own)
    names = {number: name for name, number in tokens.items()}
    for text in (alone, between):
        end = first_token(text, tokens)
        if end is None:
            continue
        if end in stops:
            return tuple(sorted(stops)), (), ""
        remark = (
            f"the chat template ends a reply with {shown(names[end])}, which the model's files "
            "do not name as an end of a text. A session ends a reply there too."
        )
        return tuple(sorted(stops | {end})), (), remark
    text = alone if alone.strip() else between
    lines = text.strip().splitlines()
    if not lines:
        return tuple(sorted(stops)), (), ""
    # With a line's end before it, because a reply may contain the words themselves.
    is_line = "\n" in text.partition(lines[0])[0]
    end_text = "\n" * is_line + lines[0].rstrip()
    remark = (
        f"the chat template ends a reply with the text {shown(end_text)}, which is not one "
        "token. A session ends a reply at this text too."
    )
    return tuple(sorted(stops)), (end_text,), remark


def after(word: str, text: str) -> str:
    """Return the text after the last occurrence of a word; "" if it does not occur."""
    _, found, rest = text.rpartition(word)
    return rest if found else ""


def first_token(text: str, tokens: Mapping[str, int]) -> int | None:
    """Return the id of the added token with which a text begins, apart from white space."""
    text = text.lstrip()
    found = max(
        (name for name in tokens if name and text.startswith(name)), key=len, default=None
    )
    return None if found is None else tokens[found]


def ids_of_ends(
    documents: Sequence[Mapping[str, Any]], tokens: Mapping[str, int], eos: Any
) -> list[int]:
    """Return the ids that a model's files name as the end of a text.

    documents: generation_config.json, config.json and its text_config. eos: `eos_token` in
    tokenizer_config.json.
    """
    ids: list[int] = []
    for document in documents:
        value = document.get(EOS)
        entries = value if isinstance(value, list) else [value]
        ids += [entry for entry in entries if type(entry) is int]
    number = tokens.get(token_text(eos))
    return ids if number is None else [*ids, number]
