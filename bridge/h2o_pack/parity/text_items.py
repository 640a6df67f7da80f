"""The questions of level `text`, each with Python's answer."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from h2o_pack.errors import in_one_line
from h2o_pack.resolved.template import Conversation, conversations
from h2o_py.files import read_file

LOAD, CONFIGURATION, TEMPLATES = "tokenizer", "configuration", "templates"
TEXTS, IDS, TURNS = "texts", "ids", "turns"
CASES = (CONFIGURATION, LOAD, TEXTS, IDS, TEMPLATES, TURNS)
"""The names of the level's cases, in the order in which the program is asked."""
FOLDER = Path(__file__).parent
FILES = (FOLDER / "probes.json", FOLDER / "texts.json")
PROSE = FOLDER / "prompt.txt"
SEED = 47
RANDOM_TEXTS, RANDOM_IDS, LENGTH = 200, 64, 256
"""The numbers of random texts and of random sequences of ids, and the ids in a sequence."""
FIRST_TOKENS = 20
ALPHABETS = (
    (0x20, 0x7E), (0x09, 0x0D), (0xA0, 0xFF), (0x300, 0x36F), (0x400, 0x44F), (0x5D0, 0x5EA),
    (0x627, 0x64A), (0x905, 0x939), (0xE01, 0xE3A), (0x3041, 0x3093), (0x4E00, 0x4EFF),
    (0xAC00, 0xACFF), (0x1F600, 0x1F64F), (0x2000, 0x2030), (0x2190, 0x21FF),
    (0x1D400, 0x1D433),
)  # fmt: skip
"""The first and the last character of ranges from which random texts are made."""


@dataclass(frozen=True)
class Item:
    """A question for the app's libraries, and Python's answer.

    case: one of `CASES`. name: how a person calls it. question: in the form that Request.swift
    reads. answer: Python's, or why Python has none. text: a text to encode.
    """

    case: str
    name: str
    question: Mapping[str, Any]
    answer: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""


def quoted(text: str, longest: int = 40) -> str:
    """Return a text in quotes, shortened, with escapes for what does not print."""
    short = text if len(text) <= longest else text[: longest - 3] + "..."
    return '"' + "".join(escaped(character) for character in short) + '"'


def escaped(character: str) -> str:
    """Return a character as it is read: a space or a printable one as itself."""
    if character in '"\\':
        return f"\\{character}"
    if character.isprintable():
        return character
    return ascii(character)[1:-1]


def items(model: Path, tokenizer: Any, stops: Sequence[int], *, tools: bool) -> list[Item]:
    """Return all questions about a model's folder.

    tokenizer: of mlx-lm or transformers. stops: ids that end a reply. tools: whether the chat
    template takes tools.
    """
    questions = [*configuration_items(model), Item(LOAD, "the tokenizer", {"kind": "load"})]
    questions += text_items(tokenizer)
    questions += id_items(tokenizer, questions)
    if getattr(tokenizer, "chat_template", None):
        questions += [template_item(tokenizer, chat) for chat in conversations()]
        questions += turn_items(tokenizer, stops, tools=tools)
    return questions


def configuration_items(model: Path) -> list[Item]:
    """Return the question about config.json."""
    path = model / "config.json"
    question = {"kind": "configuration", "file": str(path)}
    return [Item(CONFIGURATION, path.name, question, json.loads(read_file(path)))]


# Texts and ids


@cache
def probes() -> tuple[str, ...]:
    """Return the texts of `FILES`, and the prose with which parity runs models."""
    texts = (text for file in FILES for text in json.loads(file.read_text("utf-8")))
    return (*texts, PROSE.read_text("utf-8"))


def texts(tokenizer: Any) -> Iterator[str]:
    """Yield texts: each byte, the probes, special tokens inside text, and random ones."""
    for byte in range(256):
        yield chr(byte)
        yield f"a{chr(byte)}b {chr(byte)}"
    yield from probes()
    for token in special_tokens(tokenizer):
        yield token
        yield f"a{token}b {token} c\n{token}\n"
    generator = random.Random(SEED)  # noqa: S311 - not for secrets
    for _ in range(RANDOM_TEXTS):
        ranges = generator.sample(ALPHABETS, 4)
        count = generator.randint(1, 40)
        yield "".join(chr(generator.randint(*generator.choice(ranges))) for _ in range(count))


def special_tokens(tokenizer: Any) -> list[str]:
    """Return the added tokens of a tokenizer, the first and the last if there are many."""
    added = tokenizer.get_added_vocab()
    tokens = sorted(added, key=added.get)
    return list(dict.fromkeys(tokens[:FIRST_TOKENS] + tokens[-FIRST_TOKENS:]))


def text_items(tokenizer: Any) -> list[Item]:
    """Return the questions about the ids of texts, with and without special tokens around."""
    own = set(probes())
    return [
        Item(
            TEXTS,
            f"the text {quoted(text)}" + ("" if special else " without special tokens"),
            {"kind": "encode", "text": text, "special": special},
            {"ids": list(tokenizer.encode(text, add_special_tokens=special))},
            text,
        )
        for text in dict.fromkeys(texts(tokenizer))
        for special in ((True, False) if text in own else (True,))
    ]


def id_items(tokenizer: Any, of_texts: Sequence[Item]) -> list[Item]:
    """Return the questions about the text of ids: those of texts, and random ones."""
    generator = random.Random(SEED)  # noqa: S311 - not for secrets
    count = len(tokenizer)
    sequences = {
        tuple(item.answer["ids"]): f"the ids of {item.name}"
        for item in of_texts
        if item.case == TEXTS and item.answer["ids"]
    }
    for number in range(RANDOM_IDS):
        ids = tuple(generator.randrange(count) for _ in range(LENGTH))
        sequences[ids] = f"random ids {number}"
    return [
        Item(
            IDS,
            name,
            {"kind": "decode", "ids": list(ids)},
            {
                "text": tokenizer.decode(list(ids), skip_special_tokens=False),
                "plain": tokenizer.decode(list(ids), skip_special_tokens=True),
            },
        )
        for ids, name in sequences.items()
    ]


# Templates


def template_item(tokenizer: Any, chat: Conversation) -> Item:
    """Return the question about the ids of a conversation."""
    conversation = {
        "messages": list(chat.messages),
        "tools": list(chat.tools or ()),
        "variables": dict(chat.variables),
    }
    question = {
        "kind": "template", "conversation": conversation, "add_generation_prompt": chat.prompt,
    }  # fmt: skip
    answer = rendered(tokenizer, chat)
    return Item(TEMPLATES, f"the conversation {quoted(chat.name)}", question, answer)


def rendered(tokenizer: Any, chat: Conversation) -> dict[str, Any]:
    """Return the ids of a conversation, or why the template refuses it."""
    try:
        ids = tokenizer.apply_chat_template(
            [dict(message) for message in chat.messages],
            tools=list(chat.tools) if chat.tools else None,
            add_generation_prompt=chat.prompt,
            tokenize=True,
            return_dict=False,
            **chat.variables,
        )
    except Exception as error:  # noqa: BLE001 - a template may raise anything
        return {"error": in_one_line(error)}
    return {"ids": list(ids)}


CALL = {"id": "abcdefgh1", "name": "weather", "arguments": {"city": "Paris"}}
"""A call; Mistral's templates require an id of nine letters and digits."""
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tells the weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "The city's name"}},
            "required": ["city"],
        },
    },
}
SYSTEM = {"role": "system", "text": "You are brief."}
TURNS_OF: Mapping[str, list[list[dict[str, Any]]]] = {
    "two turns": [
        [{"role": "user", "text": "What is the capital of France?"}],
        [{"role": "assistant", "text": "Paris."}, {"role": "user", "text": "And of Italy?"}],
    ],
    "three turns with a system prompt": [
        [SYSTEM, {"role": "user", "text": "Count."}],
        [{"role": "assistant", "text": "One.\n\nTwo."}, {"role": "user", "text": " Go on\n"}],
        [{"role": "assistant", "text": "Three: 3 🎉"}, {"role": "user", "text": "Thanks"}],
    ],
    "a call of a tool": [
        [SYSTEM, {"role": "user", "text": "Is it warm in Paris?"}],
        [
            {"role": "assistant", "text": "", "toolCalls": [CALL]},
            {"role": "tool", "text": '{"degrees": 21}', "toolCallID": CALL["id"],
             "toolName": "weather"},
        ],
        [{"role": "assistant", "text": "Yes, 21 degrees."}, {"role": "user", "text": "Thanks"}],
    ],
}  # fmt: skip
"""New messages of each turn; a turn but the first begins with the reply to the one before."""


def turn_items(tokenizer: Any, stops: Sequence[int], *, tools: bool) -> list[Item]:
    """Return the questions about turns, with Python's rendering of the whole at each turn."""
    questions = []
    for name, turns in TURNS_OF.items():
        calls = name == "a call of a tool"
        if calls and not tools:
            continue
        own_tools = (TOOL,) if calls else None
        wholes = []
        for count in range(1, len(turns) + 1):
            messages = [fields(message) for turn in turns[:count] for message in turn]
            wholes.append(
                rendered(tokenizer, Conversation(name, "turns", messages, tools=own_tools))
            )
        question = {
            "kind": "turns",
            "conversation": {"messages": [], "tools": list(own_tools or ()), "variables": {}},
            "turns": [[swift(message) for message in turn] for turn in turns],
        }
        answer = {
            "wholes": wholes,
            "replies": [turn[0]["text"] for turn in turns],
            "stops": list(stops),
        }
        questions.append(Item(TURNS, quoted(name), question, answer))
    return questions


def swift(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message as the app's H2OMessage is encoded."""
    return {"toolCalls": [], "isCutOff": False, **message}


def fields(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message as chat templates read it, with the fields that the app gives them."""
    fields: dict[str, Any] = {"role": message["role"], "content": message["text"]}
    if calls := message.get("toolCalls"):
        fields["tool_calls"] = [
            {
                "type": "function",
                "id": call["id"],
                "function": {"name": call["name"], "arguments": call["arguments"]},
            }
            for call in calls
        ]
    if "toolCallID" in message:
        fields |= {"tool_call_id": message["toolCallID"], "name": message["toolName"]}
    return fields
