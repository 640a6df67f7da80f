"""Level 3's request: a conversation, and the caches with which sessions have it.

A request is a folder with request.json, which Swift reads. `tokens` compares Swift's answer.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import mlx.core as mx

from h2o_pack.parity.text_items import SYSTEM, TOOL, rendered
from h2o_pack.parity.trace import SHORTEST, load, prompt_tokens
from h2o_pack.resolved.template import Conversation
from h2o_py import H2OScoresMissingWarning, make_h2o_cache
from h2o_py.budgets import Budgets
from h2o_py.config import H2OConfig, H2ORecall
from h2o_py.errors import H2OConfigError
from h2o_py.routing import routed

FORMAT = 2
FILE = "request.json"
FULL = "nothing evicted"
OWN = "the package's own"
TURNS = ("What is the code of ANCHOR?", "Thanks. Say it once more.")
"""The messages after the first one."""
REPLY = 8
"""The most tokens of a reply."""
BETWEEN = 64
"""The most tokens that a chat template writes around a message and its reply."""
# Cases that level 3 leaves out, because mlx-lm's own logits change too much when each weight is
# moved by one rounding. With heavy=4,recent=8 they change by 0.1 to 0.2: rows that leave the
# ring go from 8 bits to 4, and many of their values lie on the boundary between two codes.
# Levels 1 and 2 compare these cases: there both sides get the same keys and values.
LEFT_OUT = {"float32": ("kv heavy=4,recent=8",)}
# Settings of recall by the storage of the rows.
RECALL = {"16": H2ORecall(archive_bits=16), "k8v4": H2ORecall()}


@dataclass(frozen=True)
class TokenCase:
    """The caches of a session.

    kv: a name in h2o_py.models.STORAGES. budgets: by layer; None if all layers are equal.
    returns: whether a second session prewarms, goes back before its last but one reply, and is
    saved and restored, with its archive in files.
    """

    name: str
    kv: str
    group_size: int
    config: H2OConfig
    budgets: Budgets | None = None
    returns: bool = False

    def document(self) -> dict[str, Any]:
        """Return the case as the Swift tests read it."""
        budgets = None if self.budgets is None else self.budgets.to_dict()
        return {**vars(self), "config": self.config.to_dict(), "budgets": budgets}

    def pinning(self, count: int) -> TokenCase:
        """Return the case with its first positions pinned; H2OConfigError if too many."""
        if not count:
            return self
        pinned = (*self.config.pinned, (0, count))
        return replace(self, config=replace(self.config, pinned=pinned))

    def make_caches(self, model: Any) -> list[Any]:
        """Make caches with the storage `kv`, one per layer."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", H2OScoresMissingWarning)
            return make_h2o_cache(
                model,
                self.config,
                kv=self.kv,
                group_size=self.group_size,
                budgets=self.budgets,
            )


@dataclass(frozen=True)
class Request:
    """A conversation, and the cases with which Swift must have it.

    instructions: the system prompt; None without one. tools: whether the session has a tool.
    thinking: whether the model thinks; None for a model that cannot be told. turns: the user's
    messages. opening: the ids of the first prompt. left_out: names of cases, see LEFT_OUT.
    """

    folder: Path
    dtype: str
    instructions: str | None
    tools: bool
    thinking: bool | None
    turns: tuple[str, ...]
    opening: tuple[int, ...]
    cases: tuple[TokenCase, ...]
    left_out: tuple[str, ...] = ()


def ask(
    model_folder: Path,
    chat: Mapping[str, Any],
    config: H2OConfig,
    context: int,
    storages: Mapping[str, int],
    folder: Path,
    own: TokenCase,
) -> Request:
    """Write the request to `folder`.

    chat: what the manifest says of the chat template, see `resolved.chat.Chat`. context: the
    most tokens that the model may see. storages: {kv: group size} to run beside rows in 16
    bits. own: the package's own caches.
    """
    model, tokenizer = load(model_folder)
    dtype = str(model(mx.array([[0]])).dtype).removeprefix("mlx.core.")
    cases = [*token_cases(config, storages), own]
    left_out = tuple(case.name for case in cases if case.name in LEFT_OUT.get(dtype, ()))
    cases = [case for case in cases if case.name not in left_out]
    writer = Writer(tokenizer, chat)
    for instructions, tools in writer.kinds():
        around = len(writer.prompt(instructions, "", tools=tools))
        if all(fits(case, model, around) for case in cases):
            break
    rest = len(TURNS) * (BETWEEN + REPLY) + REPLY + sum(map(writer.count, TURNS))
    room = context - rest - around
    length = min(max(config.max_size + config.max_size // 8, SHORTEST), room)
    first = tokenizer.decode(prompt_tokens(tokenizer, length), skip_special_tokens=True)
    opening = tuple(writer.prompt(instructions, first, tools=tools))
    full = TokenCase(FULL, "16", 64, H2OConfig(len(opening) + rest + SHORTEST))
    request = Request(
        folder,
        dtype,
        instructions,
        tools,
        False if writer.thinking else None,
        (first, *TURNS),
        opening,
        (full, *cases),
        left_out,
    )
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        **vars(request),
        "format": FORMAT,
        "max_tokens": REPLY,
        "cases": [case.document() for case in request.cases],
    }
    del document["folder"], document["opening"]
    (folder / FILE).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return request


@dataclass(frozen=True)
class Writer:
    """Writes the first prompt as Python's libraries do. chat: see `resolved.chat.Chat`."""

    tokenizer: Any
    chat: Mapping[str, Any]

    @property
    def thinking(self) -> str | None:
        """The template's variable that turns thoughts off; None if there is none."""
        variable: str | None = (self.chat.get("thinking") or {}).get("variable")
        return variable

    def kinds(self) -> Iterator[tuple[str | None, bool]]:
        """Yield instructions and whether there is a tool; the last has neither."""
        instructions = SYSTEM["text"] if self.chat.get("system", True) else None
        if self.chat.get("tools"):
            yield instructions, True
        yield instructions, False
        yield None, False

    def prompt(self, instructions: str | None, message: str, *, tools: bool) -> list[int]:
        """Return the ids of a conversation's first prompt."""
        if not self.chat.get("template"):
            text = message if instructions is None else f"{instructions}\n{message}"
            return list(self.tokenizer.encode(text))
        messages = [{"role": "user", "content": message}]
        if instructions is not None:
            messages.insert(0, {"role": "system", "content": instructions})
        chat = Conversation(
            "the first prompt",
            "turns",
            messages,
            tools=(TOOL,) if tools else None,
            variables={self.thinking: False} if self.thinking else {},
        )
        answer = rendered(self.tokenizer, chat)
        ids: list[int] = answer.get("ids", [])
        return ids

    def count(self, text: str) -> int:
        """Return the number of tokens of a text."""
        return len(self.tokenizer.encode(text, add_special_tokens=False))


def fits(case: TokenCase, model: Any, count: int) -> bool:
    """Return whether a case's caches can pin that many tokens of instructions and tools."""
    try:
        case.pinning(count).make_caches(model)
    except H2OConfigError:
        return False
    return True


def evicting(config: H2OConfig) -> H2OConfig:
    """Return a package's policy, or one of few rows if its caches keep every token."""
    return config if config.evicts else H2OConfig(SHORTEST)


def token_cases(config: H2OConfig, storages: Mapping[str, int]) -> Iterator[TokenCase]:
    """Yield a case for each storage; only cases with "recall" in their names recall."""
    plain = replace(config, recall=None)
    groups = {"16": 64, **storages}
    for kv, group_size in groups.items():
        yield TokenCase(f"kv {kv}", kv, group_size, plain)
    for kv, recall in RECALL.items():
        recalling = replace(config, recall=recall)
        if kv in groups:
            yield TokenCase(f"kv {kv}, recall", kv, groups[kv], recalling)


Step = Mapping[str, Any]
"""A call of the model, as Swift writes `H2OTrace.Step`: {"read": ids} or {"generated": id}."""


def ids_of(step: Step) -> list[int]:
    """Return the ids that a step reads."""
    return [step["generated"]] if "generated" in step else list(step["read"])


def replay(
    model: Any,
    caches: Sequence[Any],
    steps: Sequence[Step],
    before_step: Callable[[int], None] = lambda _count: None,
) -> dict[int, mx.array]:
    """Let mlx-lm read what made a session's caches, in the same steps.

    Returns the logits [vocabulary] after each step of a single token, by the number of tokens
    read so far. before_step: called with this number before such a step.
    """
    logits: dict[int, mx.array] = {}
    count = 0
    with routed():
        for step in steps:
            ids = ids_of(step)
            count += len(ids)
            if len(ids) == 1:
                before_step(count)
            last = model(mx.array([ids]), cache=caches)[0, -1]
            mx.eval(last, [cache.state for cache in caches])
            if len(ids) == 1:
                logits[count] = last
    return logits
