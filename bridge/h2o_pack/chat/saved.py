"""Saves conversations and continues them.

The file is a saved cache of h2o_py. Its metadata has the messages, and what made the caches. If
h2o_py cannot save the caches of a model, the file has none: they are made again by reading the
same.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from h2o_pack.chat.conversation import Conversation, State
from h2o_pack.errors import UserError, output_error, shown, usage_error
from h2o_pack.files.text import writing
from h2o_py.cache import H2OKVCache
from h2o_py.config import without_warnings
from h2o_py.errors import H2OError, H2OFileError
from h2o_py.store import load_cache, save_cache

_KEY = "h2o-pack chat"
_Id = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
_Count = Annotated[int, msgspec.Meta(ge=0)]


class SavedMessage(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A message; reasoning_content: the thoughts of a reply."""

    role: Literal["system", "user", "assistant"]
    content: str
    reasoning_content: str | None = None


class SavedChat(msgspec.Struct, forbid_unknown_fields=True):
    """What a file says of a conversation, beside its caches.

    model: the model's name. digest: of the model and its settings. The others are the fields of
    `Conversation` and `State`.
    """

    format: Literal[1]
    model: str
    digest: str
    seed: _Id
    replies: _Count
    messages: list[SavedMessage]
    count: _Count
    steps: list[_Id | list[_Id]]
    unread: list[_Id]
    pinned: _Count
    ended: bool
    thinking: bool | None = None


def save(talk: Conversation, path: Path) -> None:
    """Write a conversation to a file that only its owner can read.

    Raises UserError: the file cannot be written, or is no saved conversation.
    """
    refuse_foreign(path)
    state = talk.state
    saved = SavedChat(
        format=1,
        model=talk.model.name,
        digest=talk.model.digest,
        seed=talk.seed,
        replies=talk.replies,
        messages=msgspec.convert(talk.messages, list[SavedMessage]),
        count=state.count,
        steps=state.steps,
        unread=state.unread,
        pinned=state.pinned,
        ended=state.ended,
        thinking=talk.thinking,
    )
    caches = talk.caches if can_save(talk.caches) and state.steps else []
    # MLX writes only files with this extension.
    temporary = path.with_name(f".{path.name}.h2o-new.safetensors")
    with writing(path, remedy="Give another file."):
        temporary.unlink(missing_ok=True)  # of a run that was killed, or somebody's link
        try:
            save_cache(temporary, caches, {_KEY: msgspec.json.encode(saved).decode()})
            temporary.replace(path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise


def can_save(caches: list[Any]) -> bool:
    """Whether h2o_py saves all of these caches, with archives in memory only."""
    return all(isinstance(cache, H2OKVCache) for cache in caches)


def refuse_foreign(path: Path) -> None:
    """Refuse to replace anything but a saved conversation."""
    if not os.path.lexists(path):
        return
    try:
        described(path)
    except UserError as error:
        raise output_error(
            f"{path} exists and is not a saved conversation", "Give another name."
        ) from error


def described(path: Path) -> tuple[list[H2OKVCache], SavedChat]:
    """Read a saved conversation; UserError if the file is something else or damaged."""
    if not path.is_file():
        raise usage_error(f"{path} is not a file", "Give a file that /save wrote.")
    try:
        with without_warnings():
            caches, metadata = load_cache(path)
        if _KEY not in metadata:
            raise usage_error(
                f"{path} is a saved cache without a conversation",
                "Give a file that /save wrote.",
            )
        return caches, msgspec.json.decode(metadata[_KEY], type=SavedChat)
    except H2OFileError as error:
        raise usage_error(
            f"{path} is not a saved conversation", "Give a file that /save wrote."
        ) from error
    except (H2OError, ValueError, OSError, RecursionError) as error:
        raise usage_error(
            f"{path} is damaged: {error}", "Begin a new conversation with /reset."
        ) from error


def load(talk: Conversation, path: Path) -> None:
    """Continue the conversation in a file.

    Raises UserError: the file is no saved conversation, is damaged, or is of another model or
    of other settings; the present conversation then stays.
    """
    caches, saved = described(path)
    if saved.digest != talk.model.digest:
        other = (
            "with other settings" if saved.model == talk.model.name else "with another model"
        )
        raise usage_error(
            f"{path} was saved {other} ({shown(saved.model)})",
            "Start `h2o-pack chat` with the options of that conversation.",
        )
    messages = msgspec.to_builtins(saved.messages)
    state = State(saved.count, saved.steps, saved.unread, saved.pinned, ended=saved.ended)
    check(talk, path, messages, state, caches)
    before = talk.messages, talk.state, talk.caches
    talk.messages, talk.state, talk.caches = messages, state, list[Any](caches)
    try:
        if not caches and (state.steps or state.unread):
            talk.repeat()
    except BaseException:
        talk.messages, talk.state, talk.caches = before
        raise
    talk.seed, talk.replies = saved.seed, saved.replies
    talk.think(saved.thinking)
    talk.read_as = talk.format


def check(
    talk: Conversation,
    path: Path,
    messages: list[dict[str, Any]],
    state: State,
    caches: list[H2OKVCache],
) -> None:
    """Refuse contents that no conversation with this model has."""
    ids = [*state.ids, *state.unread]
    vocabulary = talk.model.plan.model.config.vocabulary
    first = [message["role"] == "system" for message in messages]
    wrong = (
        any(first[1:])
        or not len(messages) - 1 <= state.count <= len(messages)
        or any(token >= vocabulary for token in ids)
        or any(step == [] for step in state.steps)
        or state.pinned > len(ids)
    )
    if caches and not wrong:
        expected = talk.model.make_caches(state.pinned)
        wrong = len(caches) != len(expected) or any(
            type(cache) is not type(new)
            or cache.config != new.config
            or cache.row_format.key_bits != new.row_format.key_bits
            or cache.offset != len(state.ids)
            for cache, new in zip(caches, expected, strict=True)
        )
        for cache, new in zip(caches, expected, strict=False):
            cache.expects_queries = getattr(new, "expects_queries", True)
    if wrong:
        raise usage_error(
            f"{path} is damaged: its parts contradict each other",
            "Begin a new conversation with /reset.",
        )
