"""Level `text`: asks the app's own libraries, and compares their answers with Python's.

The cases are those of `text_items`. A difference is named as a person reads it: the text or the
conversation, the place, and both texts around it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from h2o_pack.errors import in_one_line, model_error
from h2o_pack.files.paths import MODEL_MANIFEST
from h2o_pack.models.files import TOKENIZER
from h2o_pack.models.loading import try_tokenizer
from h2o_pack.models.texts import first_difference
from h2o_pack.parity.parity_report import CaseResult, Difference, Level
from h2o_pack.parity.text_items import (
    CASES,
    CONFIGURATION,
    IDS,
    LOAD,
    TEMPLATES,
    TEXTS,
    TURNS,
    Item,
    items,
    quoted,
)
from h2o_pack.parity.text_program import Answer, ask
from h2o_pack.progress import ProgressReporter
from h2o_pack.resolved.decoders import differences
from h2o_py.files import read_file

NUMBER, NAME = 0, "text"
COMPARED = "the app's libraries for text against Python's"
AROUND = 24
"""Characters that are shown before and after the first difference of two texts."""
SHOWN_IDS = 6
"""Ids that are shown before and after the first difference of two lists."""


def check_text(program: Path, model: Path, work: Path, say: ProgressReporter) -> Level:
    """Ask the program all questions about a model's folder, and compare the answers.

    work: a folder for the request. Raises UserError: Python cannot load the tokenizer.
    """
    say("asking Python's libraries for text")
    tokenizer, chat = load(model), chat_of(model)
    questions = items(model, tokenizer, chat.get("stops", []), tools=chat.get("tools", False))
    first = [item for item in questions if item.case in (CONFIGURATION, LOAD)]
    rest = [item for item in questions if item.case not in (CONFIGURATION, LOAD)]
    answers: list[tuple[Item, Answer]] = []
    with say.bar("asking the app's libraries", len(questions), "items") as advance:
        for group in (first, rest):
            request = {
                "model": str(model),
                "stops": chat.get("stops", []),
                "items": [item.question for item in group],
            }
            answers += zip(group, ask(program, request, work, advance), strict=True)
            if any(item.case == LOAD and "error" in answer for item, answer in answers):
                break  # nothing else can be asked
    cases = [
        case_result(name, [pair for pair in answers if pair[0].case == name], tokenizer)
        for name in CASES
    ]
    return Level(NUMBER, NAME, COMPARED, tuple(case for case in cases if case.steps))


def load(model: Path) -> Any:
    """Load a model's tokenizer as mlx-lm does; UserError with its message if that fails."""
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    from transformers import AutoTokenizer  # imported late: it takes seconds

    try_tokenizer(model / TOKENIZER, str(model))
    try:
        return AutoTokenizer.from_pretrained(str(model), trust_remote_code=False)
    except Exception as error:  # a malicious model can make the libraries raise anything
        raise model_error(
            f"the tokenizer cannot be loaded: {in_one_line(error)}",
            "Make the package again.",
            where=str(model),
        ) from error


def chat_of(model: Path) -> Mapping[str, Any]:
    """Return what the manifest says of the chat template; see `resolved.chat.Chat`."""
    manifest = json.loads(read_file(model / MODEL_MANIFEST))
    chat: Mapping[str, Any] = manifest.get("chat") or {}
    return chat


def case_result(
    name: str, answers: Sequence[tuple[Item, Answer]], tokenizer: Any
) -> CaseResult:
    """Compare the answers of one case. The first difference also says how many items differ."""
    result = CaseResult(name=name, dtype=NAME, layers=0, steps=len(answers), tolerance=0.0)
    differing = 0
    for step, (item, answer) in enumerate(answers):
        kind, detail = compare(item, answer, tokenizer)
        differing += bool(detail)
        result = result.compared(Difference(None, step, kind, detail, item.name))
    first = result.first_difference
    if first is not None and differing > 1:
        detail = f"{first.detail}; {differing} of {len(answers)} differ"
        result = replace(result, first_difference=replace(first, detail=detail))
    return result


def compare(item: Item, answer: Answer, tokenizer: Any) -> tuple[str, str]:
    """Return what was compared, and how Swift's answer differs; "" if it does not."""
    wholes: Sequence[Mapping[str, Any]] = item.answer.get("wholes", ())
    refused = next((w["error"] for w in (item.answer, *wholes) if "error" in w), None)
    if "error" in answer:
        if refused and item.case in (TEMPLATES, TURNS):
            return "refusal", ""
        more = f"; Python says: {refused}" if refused else ""
        return "error", f"the app says: {answer['error']}{more}"
    if refused:
        return "refusal", f"Python says: {refused}; the app does not refuse it"
    return COMPARE[item.case](item, answer, tokenizer)


def compare_loading(_item: Item, _answer: Answer, _tokenizer: Any) -> tuple[str, str]:
    """The tokenizer loaded."""
    return "loading", ""


def compare_configuration(item: Item, answer: Answer, _tokenizer: Any) -> tuple[str, str]:
    """Compare the values of config.json."""
    return "value", "; ".join(differences(answer["values"], item.answer))


def compare_ids(item: Item, answer: Answer, tokenizer: Any) -> tuple[str, str]:
    """Compare the ids of a text or a conversation."""
    return "ids", ids_apart(answer["ids"], item.answer["ids"], tokenizer)


def compare_decoded(item: Item, answer: Answer, _tokenizer: Any) -> tuple[str, str]:
    """Compare the text of ids, at once and token by token, with and without special tokens."""
    for key, words in (("text", ""), ("plain", "without special tokens, ")):
        detail = texts_apart(answer[key], item.answer[key])
        if detail:
            return "decoded text", words + detail
        detail = texts_apart(answer[f"streamed_{key}"], answer[key], ("streamed", "at once"))
        if detail:
            return "streamed text", words + detail
    return "text", ""


def compare_turns(item: Item, answer: Answer, tokenizer: Any) -> tuple[str, str]:
    """Compare what a session reads in each turn with one rendering of all messages so far.

    The ids of the first turn are the rendering. The ids of a later turn are its end, and before
    them comes the reply, with the token that ended it.
    """
    turns, wholes = answer["turns"], item.answer["wholes"]
    for number, (turn, whole) in enumerate(zip(turns, wholes, strict=True)):
        if number:
            detail = end_apart(item, number, turn["ids"], whole["ids"], tokenizer)
        else:
            detail = ids_apart(turn["ids"], whole["ids"], tokenizer)
        if detail:
            return "turn", f"turn {number + 1}: {detail}"
    return "turn", ""


def end_apart(
    item: Item, number: int, ids: Sequence[int], whole: Sequence[int], tokenizer: Any
) -> str:
    """Say how what the app reads in a later turn differs from the end of the rendering.

    ids: read in this turn. whole: of the rendering. Texts are compared, because a rendering may
    have one token for the end of a reply and the beginning of what follows it. Returns "" if
    the rendering is the reply, perhaps a token that ended it, and what the app reads.
    """
    show = partial(tokenizer.decode, skip_special_tokens=False)
    text, own = show(list(whole)), show(list(ids))
    if not text.endswith(own):
        return texts_apart(own, text[max(0, len(text) - len(own)) :])
    before = text[: len(text) - len(own)].rstrip()
    for stop in item.answer["stops"]:
        before = before.removesuffix(show([stop])).rstrip()
    # A template may write white space in a reply in another way.
    words = item.answer["replies"][number].split()
    ends = [match.end() for match in re.finditer(r"\s+".join(map(re.escape, words)), before)]
    if not words or not ends or ends[-1] == len(before):
        return ""
    reply = quoted(item.answer["replies"][number])
    return f"the app does not read {quoted(before[ends[-1] :])} after the reply {reply}"


COMPARE: Mapping[str, Callable[[Item, Answer, Any], tuple[str, str]]] = {
    CONFIGURATION: compare_configuration,
    LOAD: compare_loading,
    TEXTS: compare_ids,
    IDS: compare_decoded,
    TEMPLATES: compare_ids,
    TURNS: compare_turns,
}


def ids_apart(ids: Sequence[int], expected: Sequence[int], tokenizer: Any) -> str:
    """Say how two lists of ids differ, with the text around; "" if they are equal."""
    if list(ids) == list(expected):
        return ""
    place = first_difference(ids, expected)

    def text(part: Sequence[int]) -> str:
        return quoted(tokenizer.decode(list(part), skip_special_tokens=False))

    def own(whole: Sequence[int]) -> str:
        part = whole[place : place + SHOWN_IDS]
        more = ", ..." if len(whole) > place + SHOWN_IDS else ""
        return f"{text(part)} (ids {', '.join(map(str, part))}{more})" if part else "nothing"

    where = after(text(expected[max(0, place - SHOWN_IDS) : place]))
    return f"id {place} differs{where}: {own(ids)} in Swift, {own(expected)} in Python"


def after(text: str) -> str:
    """Return which text in quotes comes before a difference; "" for none."""
    return "" if text == '""' else f", after {text}"


def texts_apart(
    text: str, expected: str, names: tuple[str, str] = ("in Swift", "in Python")
) -> str:
    """Say how two texts differ, with what is around; "" if they are equal."""
    if text == expected:
        return ""
    place = first_difference(text, expected)
    where = after(quoted(expected[max(0, place - AROUND) : place]))
    own, other = (
        quoted(whole[place : place + AROUND]) if whole[place:] else "nothing"
        for whole in (text, expected)
    )
    return f"character {place} differs{where}: {own} {names[0]}, {other} {names[1]}"
