"""Reads the TOML files of this folder strictly, into frozen structs."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import msgspec

toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
FOLDER = Path(__file__).parent

Type = Literal["integer", "number", "score", "ranges", "bytes", "layers", "folder"]
ValueType = Literal["text", "integer", "names"]


class SourceError(Exception):
    """The source contradicts itself, or states what nothing uses."""


class Field(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A setting of the policy. It has a default, a formula, one per score, or none.

    flag: "" for a setting of recall that `h2o-pack ios` has no option for. choices: all
    values of an integer, where they are few. below_least: the error where the formula gives
    less than `least`. kernel: whether Metal
    kernels get it by value. core: whether the C++ core gets it.
    """

    name: str
    type: Type
    meaning: str
    flag: str = ""
    help: str
    choices: list[int] = []
    least: int | None = None
    most: int | None = None
    default: int | float | str | None = None
    formula: str = ""
    by_score: dict[str, float] = {}
    default_meaning: str = ""
    below_least: str = ""
    kernel: bool = False
    core: bool = True

    @property
    def required(self) -> bool:
        """Whether it must be given."""
        return self.default is None and not (self.derived or self.optional)

    @property
    def optional(self) -> bool:
        """Whether nothing is a value of it: no ranges, all layers, no folder."""
        return self.type in ("ranges", "layers", "folder")

    @property
    def derived(self) -> bool:
        """Whether its default depends on other settings."""
        return bool(self.formula or self.by_score)


class Named(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A score."""

    name: str
    meaning: str


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What must hold between settings, and the error or the warning where it does not."""

    holds: str
    let: dict[str, str] = {}
    error: str = ""
    warning: str = ""


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A named policy: the defaults that it changes, by value or by formula."""

    name: str
    title: str
    meaning: str = ""
    values: dict[str, float | str] = {}
    formulas: dict[str, str] = {}


class Recall(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The settings of recall; `warning` is given where `most_rows` is less than asked for."""

    meaning: str
    most_rows: str
    warning: str
    field: list[Field]


class PolicyFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """policy.toml."""

    constants: dict[str, int]
    field: list[Field]
    score: list[Named]
    rule: list[Rule]
    policy: list[Policy]
    recall: Recall


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An error or a warning.

    field: the setting to change where no value names it. swift: whether Swift has the case.
    """

    code: str
    meaning: str
    values: dict[str, ValueType]
    what: str
    remedy: str = ""
    field: str = ""
    swift: bool = True


class ErrorsFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """errors.toml."""

    allowed: dict[str, str]
    error: list[Case]
    warning: list[Case]


class Storage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A way to store rows."""

    name: str
    swift: str
    key: Literal[4, 8, 16]
    value: Literal[4, 8, 16]
    meaning: str
    recent: Literal[8, 16] | None = None
    rotated: bool = False


class StoragesFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """storages.toml."""

    group_sizes: list[int]
    synonyms: dict[str, str]
    storage: list[Storage]


class UnfitFamily(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Models that would be wrong with rows missing; see families.toml."""

    reason: str
    source: str
    mlx_lm: dict[str, str] = {}
    swift: list[str] = []
    model_types: list[str] = []


class FamiliesFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """families.toml."""

    unfit: list[UnfitFamily]


class Source(msgspec.Struct, frozen=True):
    """All that the files of a folder state."""

    policy: PolicyFile
    errors: ErrorsFile
    storages: StoragesFile
    families: FamiliesFile

    @property
    def fields(self) -> list[Field]:
        """The settings in their order."""
        return self.policy.field

    @property
    def recall_fields(self) -> list[Field]:
        """The settings of recall in their order."""
        return self.policy.recall.field

    def case(self, code: str) -> Case:
        """The error or warning of this code."""
        return next(c for c in (*self.errors.error, *self.errors.warning) if c.code == code)


def read(folder: Path = FOLDER) -> Source:
    """Read the source and check that it does not contradict itself.

    Raises:
        SourceError: names the file, the key and what is wrong.

    """
    source = Source(
        _file(folder / "policy.toml", PolicyFile),
        _file(folder / "errors.toml", ErrorsFile),
        _file(folder / "storages.toml", StoragesFile),
        _file(folder / "families.toml", FamiliesFile),
    )
    problems = list(_contradictions(source))
    if problems:
        raise SourceError("\n".join(problems))
    return source


def names_in(formula: str) -> set[str]:
    """The settings, constants and functions that a formula names."""
    return set(re.findall(r"[A-Za-z_]\w*", formula))


def _file(path: Path, kind: type[Any]) -> Any:
    try:
        return msgspec.convert(toml.loads(path.read_text("utf-8")), kind, strict=True)
    except (msgspec.ValidationError, ValueError) as error:
        raise SourceError(f"interface/{path.name}: {error}") from None


def _contradictions(source: Source) -> Any:
    policy = source.policy
    fields = {field.name for field in policy.field}
    known = {*fields, *policy.constants, "min", "max", "covered"}
    codes = {case.code for case in source.errors.error}
    warnings = {case.code for case in source.errors.warning}
    for field in policy.field:
        where = f"interface/policy.toml: {field.name}"
        if field.type == "number" and field.least is None:
            yield f"{where}: a number needs `least`."
        if field.by_score and set(field.by_score) != {score.name for score in policy.score}:
            yield f"{where}: by_score needs one value per score."
        if field.below_least and field.below_least not in codes:
            yield f"{where}: below_least = {field.below_least!r} is not an error."
        for name in sorted(names_in(field.formula) - known):
            yield f"{where}: its formula names {name!r}, which is not a setting."
    for rule in policy.rule:
        where = f"interface/policy.toml: the rule {rule.holds!r}"
        if (rule.error in codes) == (rule.warning in warnings):
            yield f"{where} needs either an error or a warning of errors.toml."
        formulas = " ".join((rule.holds, *rule.let.values()))
        for name in sorted(names_in(formulas) - known - set(rule.let)):
            yield f"{where} names {name!r}, which is not a setting."
    yield from _recall_contradictions(policy, known, warnings)
    for each in policy.policy:
        for name in sorted({*each.values, *each.formulas} - fields):
            yield (
                f"interface/policy.toml: the policy {each.name} sets {name!r}, which is "
                "not a setting."
            )
    for case in (*source.errors.error, *source.errors.warning):
        named = set(re.findall(r"\{name\.(\w+)\}", case.what + case.remedy)) - {"field"}
        filled = set(re.findall(r"\{(\w+)(?:!r)?\}", case.what + case.remedy))
        for name in sorted((filled - set(case.values)) | (named - fields)):
            yield (
                f"interface/errors.toml: {case.code} is worded with {name!r}, which it "
                "does not have."
            )


def _recall_contradictions(policy: PolicyFile, known: set[str], warnings: set[str]) -> Any:
    recall = policy.recall
    if recall.warning not in warnings:
        yield f"interface/policy.toml: recall.warning = {recall.warning!r} is not a warning."
    formulas = " ".join((recall.most_rows, *(field.formula for field in recall.field)))
    for name in sorted(names_in(formulas) - known):
        yield f"interface/policy.toml: [recall] names {name!r}, which is not a setting."
