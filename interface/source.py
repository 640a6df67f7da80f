"""Reads the TOML files of this folder strictly, into frozen structs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal

import msgspec

FOLDER = Path(__file__).parent

Type = Literal["integer", "score", "ranges", "bytes", "layers", "folder"]
ValueType = Literal["text", "integer", "names"]


class SourceError(Exception):
    """Definitions contradict each other."""


class Field(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A setting of the policy or of recall, with its default if it has one.

    flag: option of `h2o-pack ios`; "" for a setting of recall without one. choices: the allowed
    values of an integer that has only a few. derived: whether its default depends on other
    settings. kernel: whether it is passed to Metal kernels. core: whether the C++ core has it.
    """

    name: str
    type: Type
    meaning: str
    flag: str = ""
    help: str
    choices: list[int] = []
    least: int | None = None
    default: int | str | None = None
    derived: bool = False
    default_meaning: str = ""
    kernel: bool = False
    core: bool = True

    @property
    def required(self) -> bool:
        """Whether the user must set it."""
        return self.default is None and not (self.derived or self.optional)

    @property
    def optional(self) -> bool:
        """Whether a user may leave the setting empty: no ranges, all layers, no folder."""
        return self.type in ("ranges", "layers", "folder")


class Score(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A score; decay: the factor applied to it by each query that sees the row."""

    name: str
    meaning: str
    decay: float


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A named policy, and the defaults that it changes."""

    name: str
    title: str
    values: dict[str, int | str] = {}


class Recall(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The settings of recall."""

    meaning: str
    field: list[Field]


class PolicyFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of policy.toml."""

    constants: dict[str, int]
    field: list[Field]
    score: list[Score]
    policy: list[Policy]
    recall: Recall


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An error or a warning.

    field: the setting to change; "" if the case has a value `field`. swift: whether Swift has
    the case.
    """

    code: str
    meaning: str
    values: dict[str, ValueType]
    what: str
    remedy: str = ""
    field: str = ""
    swift: bool = True


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Any other message.

    swift: whether Swift has it, for a code that the core reports, or as a function. python:
    whether Python has it. swift_remedy: what to do in Swift, if it is something else.
    """

    code: str
    values: dict[str, ValueType] = {}
    what: str
    remedy: str = ""
    swift: Literal["core", "function"] | None = None
    python: bool = True
    swift_remedy: str | None = None


class ErrorsFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of errors.toml."""

    allowed: dict[str, str]
    reasons: dict[str, str]
    error: list[Case]
    warning: list[Case]
    message: list[Message]


class Storage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A storage: the bits with which a cache stores its rows."""

    name: str
    swift: str
    key: Literal[4, 8, 16]
    value: Literal[4, 8, 16]
    meaning: str
    recent: Literal[4, 8, 16] | None = None
    rotated: bool = False


class StoragesFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of storages.toml."""

    group_sizes: list[int]
    synonyms: dict[str, str]
    storage: list[Storage]


class Source(msgspec.Struct, frozen=True):
    """The definitions of policy.toml, errors.toml and storages.toml."""

    policy: PolicyFile
    errors: ErrorsFile
    storages: StoragesFile

    @property
    def fields(self) -> list[Field]:
        """The settings in their order."""
        return self.policy.field

    @property
    def recall_fields(self) -> list[Field]:
        """The settings of recall in their order."""
        return self.policy.recall.field


def read(folder: Path = FOLDER) -> Source:
    """Read all definitions and check that they do not contradict each other.

    Raises:
        SourceError: names the file, the key and what is wrong.

    """
    source = Source(
        _file(folder / "policy.toml", PolicyFile),
        _file(folder / "errors.toml", ErrorsFile),
        _file(folder / "storages.toml", StoragesFile),
    )
    problems = list(_contradictions(source))
    if problems:
        raise SourceError("\n".join(problems))
    return source


def _file(path: Path, kind: type[Any]) -> Any:
    try:
        return msgspec.toml.decode(path.read_bytes(), type=kind)
    except ValueError as error:
        raise SourceError(f"interface/{path.name}: {error}") from None


def _contradictions(source: Source) -> Any:
    fields = {field.name for field in source.fields}
    for policy in source.policy.policy:
        for name in sorted(set(policy.values) - fields):
            yield (
                f"interface/policy.toml: the policy {policy.name} sets {name!r}, which is "
                "not a setting."
            )
    cases: list[Case | Message] = [
        *source.errors.error, *source.errors.warning, *source.errors.message
    ]  # fmt: skip
    for case in cases:
        fields_named = set(re.findall(r"\{name\.(\w+)\}", case.what + case.remedy)) - {"field"}
        filled = set(re.findall(r"\{(\w+)(?:!r)?\}", case.what + case.remedy))
        for name in sorted((filled - set(case.values)) | (fields_named - fields)):
            yield (
                f"interface/errors.toml: {case.code} is worded with {name!r}, which it "
                "does not have."
            )
