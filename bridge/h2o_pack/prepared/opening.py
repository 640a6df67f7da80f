"""Which tokens every first turn of an app begins with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from h2o_pack.errors import ExitCode, UserError
from h2o_pack.models.chat_template import ChatTemplate

USERS = ("a", "0")
"""What users say in two first turns that have nothing in common; PromptFormat has the same."""
DATES = ("1", "2")
NEEDLESS = "Leave --system out: the app reads its system prompt in the first turn, as ever."


def opening_tokens(tokenizer: Any, system: str, *, templated: bool) -> list[int]:
    """Return the ids with which every first turn begins, whatever its user says.

    They are the common part of two first turns, as the session of the Swift package pins it:
    the system prompt and the template's marks around it. Without a template it is plain text
    and a line's end.

    Args:
        tokenizer: the model's, of mlx_lm.
        system: the system prompt.
        templated: whether the model has a chat template.

    """
    if templated:
        return common([ids_of(tokenizer, conversation(system, user)) for user in USERS])
    return common([tokenizer.encode(text) for text in plain_turns(system)])


def plain_turns(system: str) -> list[str]:
    """Return what first turns of a model without a template begin with."""
    return [f"{system}\n", *(f"{system}\n{user}" for user in USERS)]


def templated_turns(template: ChatTemplate, system: str) -> list[str]:
    """Return the texts of two first turns."""
    turns = [conversation(system, user) for user in USERS]
    return [template.render(turn, lambda _format: DATES[0]) for turn in turns]


def opening_length(tokenizer: Any, system: str, template: ChatTemplate | None) -> int:
    """Return the number of tokens with which every first turn begins.

    tokenizer: of the `tokenizers` library, which is at hand before the model is.
    """
    texts = plain_turns(system) if template is None else templated_turns(template, system)
    marks = template is None  # a template writes the marks of a text's begin itself
    return len(common([tokenizer.encode(each, add_special_tokens=marks).ids for each in texts]))


def ids_of(tokenizer: Any, messages: list[dict[str, str]]) -> list[int]:
    """Return the ids of messages, with what begins the model's turn after them."""
    ids: list[int] = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, tokenize=True, return_dict=False
    )
    return ids


def check_template(template: ChatTemplate, system: str) -> None:
    """Check that a system prompt is in what all first turns begin with.

    Raises:
        UserError: the template refuses one, leaves it out, or writes the date before its end.

    """
    from jinja2 import TemplateError

    def rendered(user: str, date: str) -> str:
        return template.render(conversation(system, user), lambda _format: date)

    try:
        always = common([rendered(user, DATES[0]) for user in USERS])
        each_day = common([rendered(USERS[0], date) for date in DATES])
    except TemplateError as error:
        raise refused(template, f"refuses a system prompt: {error}") from error
    if system not in "".join(always):
        raise refused(template, "leaves out what the system says")
    if len(each_day) < len(always):
        raise refused(template, "writes the date, so that each day's turns begin otherwise")


def conversation(system: str, user: str) -> list[dict[str, str]]:
    """Return the messages of a first turn."""
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]


def common(sequences: Sequence[Sequence[Any]]) -> list[Any]:
    """Return the elements with which all sequences begin."""
    found = []
    for elements in zip(*sequences, strict=False):
        if len(set(elements)) > 1:
            break
        found.append(elements[0])
    return found


def refused(template: ChatTemplate, what: str) -> UserError:
    """Make the error for a template with which nothing can be prepared."""
    return UserError(
        f"the chat template {what}",
        where=template.file,
        remedy=NEEDLESS,
        code=ExitCode.USAGE,
    )
