"""The files of Model/ that h2o-pack writes instead of copying, and the facts beside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from h2o_pack.files.paths import CONFIG
from h2o_pack.files.text import parse_object
from h2o_pack.model import Model
from h2o_pack.models.files import SAMPLING_FILE, TOKENIZER, TOKENIZER_CONFIG
from h2o_pack.models.loading import LARGEST
from h2o_pack.models.texts import ModelTexts, document_of
from h2o_pack.models.trial import attempt
from h2o_pack.resolved.chat import Chat, Described, ids_of_ends

READ = {CONFIG: LARGEST, TOKENIZER: LARGEST}
"""The most bytes of the files that are read besides the texts of a model's makers."""


@dataclass(frozen=True)
class Resolved:
    """What Python resolved of a model's files.

    chat: what the session must know of the chat template. remarks: notes for the user.
    """

    chat: Chat = field(default_factory=Chat)
    remarks: tuple[str, ...] = ()


def resolve_files(model: Model, texts: ModelTexts, files: Mapping[str, bytes]) -> Resolved:
    """Resolve a model's files.

    files: the content of the files in `READ` and of those with texts, by name. Raises
    UserError: all errors in them.
    """
    where = str(model.folder or model.id)
    described = chat_of(texts, files, where)
    return Resolved(described.chat, described.remarks)


def chat_of(texts: ModelTexts, files: Mapping[str, bytes], where: str) -> Described:
    """Describe the chat template, in another process because a template is code."""
    tokenizer = parse_object(files[TOKENIZER], TOKENIZER, where, LARGEST)
    tokens = dict(ids(tokenizer))
    configuration = document_of(files, CONFIG, where)
    inner = configuration.get("text_config")
    documents = (
        document_of(files, SAMPLING_FILE, where),
        configuration,
        inner if isinstance(inner, dict) else {},
    )
    eos = document_of(files, TOKENIZER_CONFIG, where).get("eos_token")
    template = texts.template
    answer = attempt(
        "chat",
        where,
        source=template.source if template else None,
        special=dict(template.special) if template else {},
        tokens=tokens,
        own=ids_of_ends(documents, tokens, eos),
    )
    return msgspec.convert(answer, Described)


def ids(tokenizer: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield the added tokens of a tokenizer.json with their ids."""
    entries = tokenizer.get("added_tokens")
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, dict):
            content, number = entry.get("content"), entry.get("id")
            if isinstance(content, str) and type(number) is int:
                yield content, number
