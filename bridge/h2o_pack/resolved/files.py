"""The files of Model/ that h2o-pack writes instead of copying, and the facts beside them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import msgspec

from h2o_pack.errors import Problems
from h2o_pack.files.paths import CONFIG
from h2o_pack.files.text import parse_object
from h2o_pack.model import Contents, Model, ModelFile
from h2o_pack.models.files import (
    SAMPLING_FILE,
    TEMPLATE_BYTES,
    TEMPLATE_FILE,
    TEMPLATE_JSON,
    TOKENIZER,
    TOKENIZER_CONFIG,
)
from h2o_pack.models.loading import LARGEST
from h2o_pack.models.texts import ChatTemplate, ModelTexts, document_of
from h2o_pack.models.trial import attempt
from h2o_pack.resolved import python_tokenizer
from h2o_pack.resolved.chat import Chat, Described, ids_of_ends
from h2o_pack.resolved.configuration import resolve_configuration, to_json
from h2o_pack.resolved.tokenizer import (
    PythonTokenizer,
    ResolvedTokenizer,
    check_ids,
    resolve_tokenizer,
    token_ids,
)

READ = {
    CONFIG: LARGEST,
    TOKENIZER: LARGEST,
    **dict.fromkeys(python_tokenizer.MAPS, TEMPLATE_BYTES),
}
"""The most bytes of the files that are read besides the texts of a model's makers."""
LEFT_OUT = (
    *(TEMPLATE_JSON, "tokenizer.model", "vocab.json", "merges.txt"),
    *python_tokenizer.MAPS,
)
"""Files that a package does not need, because what they say is in the written files."""


@dataclass(frozen=True)
class WrittenFile:
    """A file of Model/: its content, and the model's own files from which it follows."""

    content: bytes
    sources: tuple[str, ...]


@dataclass(frozen=True)
class Resolved:
    """What Python resolved of a model's files.

    written: files of Model/, by name. read: the model's own files from which they follow. chat:
    what the session must know of the chat template. remarks: notes for the user.
    """

    written: Mapping[str, WrittenFile] = field(default_factory=dict)
    read: Mapping[str, bytes] = field(default_factory=dict)
    chat: Chat = field(default_factory=Chat)
    remarks: tuple[str, ...] = ()

    def files(self, own: Iterable[ModelFile]) -> tuple[ModelFile, ...]:
        """Return the files in the package of a model with these files of its own."""
        written = {name: len(file.content) for name, file in self.written.items()}
        copied = {f.path: f for f in own if f.path not in (*LEFT_OUT, *written)}
        files = {name: ModelFile(name, size) for name, size in written.items()} | copied
        return tuple(files[name] for name in sorted(files))


def resolve_files(model: Model, texts: ModelTexts, files: Mapping[str, bytes]) -> Resolved:
    """Resolve a model's files.

    texts: of the model's makers. files: the content of the files in `READ` and of those with
    texts, by name. Raises UserError: all that the app would refuse or read in another way.
    """
    where = model.id
    problems = Problems(where)
    written: dict[str, WrittenFile] = {}
    remarks: list[str] = []
    chat = Chat()
    with problems.caught():
        document, notes = configuration_of(model.contents, where)
        written[CONFIG] = WrittenFile(document, (CONFIG,))
        remarks += notes
    with problems.caught():
        parse_object(files[TOKENIZER], TOKENIZER, where, LARGEST)  # names a Git LFS pointer
        python, tokenizer = tokenizer_of(
            tuple((name, files[name]) for name in python_tokenizer.READ if name in files), where
        )
        sources = tuple(name for name in python_tokenizer.READ[1:] if name in files)
        written[TOKENIZER] = WrittenFile(tokenizer.tokenizer, sources)
        written[TOKENIZER_CONFIG] = WrittenFile(tokenizer.config, sources)
        template = texts.template
        if template is not None:
            source, notes = template_of(template, python.special, where)
            written[TEMPLATE_FILE] = WrittenFile(source.encode(), (template.file,))
            remarks += notes
        described = chat_of(template, python, files, where)
        chat = described.chat
        remarks += described.remarks
        ends = {f"end {number}": number for number in chat.stops}
        check_ids({**token_ids(python.content), **ends}, model.config.vocabulary, where)
    problems.refuse()
    names = {name for file in written.values() for name in file.sources}
    read = {name: files[name] for name in sorted(names)}
    return Resolved(written, read, chat, tuple(remarks))


def configuration_of(contents: Contents | None, where: str) -> tuple[bytes, tuple[str, ...]]:
    """Return the package's config.json, and notes for the user."""
    if contents is None:
        raise TypeError("a model that is packaged has files")
    resolved = resolve_configuration(contents.config, contents.tensors, where)
    return to_json(resolved.document), resolved.notes


@lru_cache(maxsize=4)
def tokenizer_of(
    files: tuple[tuple[str, bytes], ...], where: str
) -> tuple[PythonTokenizer, ResolvedTokenizer]:
    """Return a model's tokenizer as Python loads it, and the files of the package; cached.

    files: names and contents of the files that transformers reads.
    """
    by_name = dict(files)
    python = python_tokenizer.read_tokenizer(by_name, where)
    resolved = resolve_tokenizer(python, where)
    python_tokenizer.prove_tokenizer(by_name, python, resolved, where)
    return python, resolved


def template_of(
    template: ChatTemplate, special: Mapping[str, str], where: str
) -> tuple[str, tuple[str, ...]]:
    """Return the canonical text of a chat template, and notes for the user."""
    from h2o_pack.resolved.template import canonical_template, prove  # these import Jinja

    place = f"{where}/{template.file}"
    source = canonical_template(template.source, place)
    served = prove(template.source, source, special, place)
    if served.serves("turns"):
        return source, ()
    return source, ("the chat template refuses a second turn, so each session has only one.",)


def chat_of(
    template: ChatTemplate | None,
    tokenizer: PythonTokenizer,
    files: Mapping[str, bytes],
    where: str,
) -> Described:
    """Describe a chat template, in another process because a template is code."""
    tokens = {token["content"]: token["id"] for token in tokenizer.content["added_tokens"]}
    configuration: dict[str, Any] = document_of(files, CONFIG, where)
    inner = configuration.get("text_config")
    documents = (
        document_of(files, SAMPLING_FILE, where),
        configuration,
        inner if isinstance(inner, dict) else {},
    )
    answer = attempt(
        "chat",
        where,
        source=template.source if template else None,
        special=dict(tokenizer.special),
        tokens=tokens,
        own=ids_of_ends(documents, tokens, tokenizer.special.get("eos_token")),
    )
    return msgspec.convert(answer, Described)
