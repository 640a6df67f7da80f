"""Facts about other products: TOML files, read strictly into frozen dataclasses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, TypeVar

from msgspec import Meta, Struct

from h2o_pack.files.toml import read_rows, read_tables
from h2o_pack.results import Count, doc
from h2o_py.families import UNFIT_FAMILIES, UnfitFamily

FOLDER = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class Fact:
    """A named fact about another product, and its source.

    measured: whether this project has checked it itself; the comments of each file say how.
    """

    name: str
    source: str
    measured: bool


@dataclass(frozen=True, kw_only=True)
class Pin(Fact):
    """A version of an upstream package; `commit` if it is a git repository.

    A submodule names its containing pin as `parent`, and its `path` there. follows: the release
    before a commit that is not a release.
    """

    version: str
    commit: str = ""
    parent: str = ""
    path: str = ""
    follows: str = ""

    @property
    def place(self) -> str:
        """The path of the pin's files in a folder with all packages."""
        return f"{self.parent}/{self.path}" if self.parent else self.name


Percent = Annotated[float, Meta(ge=0, le=100)]


class Quality(Struct, frozen=True, forbid_unknown_fields=True):
    """Results that the makers of a model published, for its weights in 16 bits."""

    source: Annotated[str, doc("Where the results were published.")]
    read: Annotated[str, doc("Day on which the source was read.")]
    mmlu_pro: Annotated[
        Percent | None, doc("Percent of MMLU-Pro's questions answered; null if not published.")
    ] = None
    ifeval: Annotated[
        Percent | None, doc("Percent of IFEval's instructions followed; null if not published.")
    ] = None
    thinking: Annotated[bool, doc("Whether the model thought before it answered.")] = False


@dataclass(frozen=True)
class KnownModel:
    """A model of the catalogue; 0, "" and null mean not stated."""

    name: Annotated[str, doc("Name to give as --model.")]
    source: Annotated[str, doc("Source of the id and the numbers.")]
    hub: Annotated[str, doc("Id on the hub.")] = ""
    revision: Annotated[str, doc("Branch, tag or commit on the hub.")] = ""
    bundled: Annotated[str, doc("Folder in h2o-pack, for a bundled model.")] = ""
    folder: Annotated[str, doc("Folder on this machine.")] = ""
    config: Annotated[
        dict[str, Any],
        doc(
            "The keys of config.json that a plan needs; if quantization is missing, the "
            "weights have 4 bits in groups of 64."
        ),
    ] = field(default_factory=dict)
    weights_bytes: Annotated[
        Count,
        doc(
            "Bytes of the language model's weights, computed from their shapes with "
            "mlx_lm's quantization."
        ),
    ] = 0
    bytes_per_token: Annotated[
        Count, doc("Bytes of weights read to decode one token; 0 for all weights.")
    ] = 0
    license: Annotated[str, doc("License, as the model's card names it.")] = ""
    tools: Annotated[bool | None, doc("Whether the chat template writes tools.")] = None
    thinking: Annotated[bool | None, doc("Whether the model can think before it answers.")] = (
        None
    )
    languages: Annotated[
        Count, doc("Number of languages that the model's card says it supports.")
    ] = 0
    quality: Annotated[Quality | None, doc("Published results; null if none are known.")] = None

    @property
    def rank(self) -> tuple[float, float, int]:
        """The key that orders models, the best last: MMLU-Pro, then IFEval, then the size.

        A result that is not known counts as less than any other.
        """
        mmlu_pro = self.quality and self.quality.mmlu_pro
        ifeval = self.quality and self.quality.ifeval
        return mmlu_pro or 0, ifeval or 0, self.weights_bytes

    @property
    def read_per_token(self) -> int:
        """Bytes of weights read to decode one token."""
        return self.bytes_per_token or self.weights_bytes


@dataclass(frozen=True)
class SwiftModel:
    """A language model of mlx-swift-lm; swift_models.toml explains the fields."""

    model_type: str
    swift: str
    scores: bool = True
    inner: tuple[str, ...] = ()
    fixed: dict[str, Any] = field(default_factory=dict)
    absent: dict[str, Any] = field(default_factory=dict)
    assumed: dict[str, Any] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    prefix: str = ""


@dataclass(frozen=True)
class Refused:
    """Model types that are known but not supported, and why."""

    model_types: tuple[str, ...]
    reason: str


@dataclass(frozen=True, kw_only=True)
class Requirement(Fact):
    """The oldest supported version of a tool."""

    version: str


@dataclass(frozen=True, kw_only=True)
class Limit(Fact):
    """A size in bytes above which the App Store refuses an app, or asks users first."""

    bytes: int
    what: str


@dataclass(frozen=True, kw_only=True)
class AppPart(Fact):
    """A part of an app besides its models: estimated bytes, with a range."""

    bytes: int
    least: int
    most: int
    what: str


@dataclass(frozen=True, kw_only=True)
class Unlisted(Fact):
    """Bytes of a model's files other than its tensors, per token of the vocabulary."""

    bytes_per_token: int


@dataclass(frozen=True)
class SwiftModelsFile:
    """The content of swift_models.toml."""

    model: tuple[SwiftModel, ...]
    windows: tuple[Refused, ...]
    refused: tuple[Refused, ...]


@dataclass(frozen=True)
class AppFile:
    """The content of app.toml."""

    part: tuple[AppPart, ...]
    unlisted: tuple[Unlisted, ...]


def best_first(models: Iterable[KnownModel]) -> list[KnownModel]:
    """Return models ordered by their published results; see `KnownModel.rank`."""
    return sorted(models, key=lambda model: model.rank, reverse=True)


Row = TypeVar("Row")


def by(field: str, facts: Iterable[Row]) -> Mapping[str, Row]:
    """Return a mapping of facts by one of their fields."""
    return MappingProxyType({getattr(fact, field): fact for fact in facts})


@cache
def pins() -> Mapping[str, Pin]:
    """The pins of upstream's packages by name."""
    return by("name", read_rows(FOLDER / "upstream.toml", "pin", Pin))


def locked_pins() -> dict[str, dict[str, str]]:
    """Return the pins as a package's lock records them."""
    return {pin.name: {"version": pin.version, "commit": pin.commit} for pin in pins().values()}


def with_submodules(names: Iterable[str]) -> tuple[Pin, ...]:
    """Return the pins of these names, each followed by its submodules."""
    by_name = pins()
    return tuple(
        pin
        for name in names
        for pin in (by_name[name], *(pin for pin in by_name.values() if pin.parent == name))
    )


@cache
def known_models() -> Mapping[str, KnownModel]:
    """The models that have a short name, by this name."""
    return by("name", read_rows(FOLDER / "models.toml", "model", KnownModel))


@cache
def swift_file() -> SwiftModelsFile:
    """The content of swift_models.toml."""
    return read_tables(FOLDER / "swift_models.toml", SwiftModelsFile)


@cache
def swift_models() -> Mapping[str, SwiftModel]:
    """The language models of mlx-swift-lm that packages can have, by model type."""
    return by("model_type", swift_file().model)


@cache
def refused_types() -> Mapping[str, str]:
    """Why model types are not supported, by their names."""
    return reasons((*swift_file().refused, *UNFIT_FAMILIES))


@cache
def refused_windows() -> Mapping[str, str]:
    """Why layers with a sliding window are not supported, by model type."""
    return reasons(swift_file().windows)


def reasons(refusals: Iterable[Refused | UnfitFamily]) -> Mapping[str, str]:
    """Return the reason for each refused model type."""
    return MappingProxyType(
        {name: refusal.reason for refusal in refusals for name in refusal.model_types}
    )


@cache
def requirements() -> Mapping[str, Requirement]:
    """The oldest supported versions of tools, by the tool's name."""
    return by("name", read_rows(FOLDER / "requirements.toml", "requirement", Requirement))


@cache
def store_limits() -> Mapping[str, Limit]:
    """Apple's limits by name."""
    return by("name", read_rows(FOLDER / "store.toml", "limit", Limit))


@cache
def app_file() -> AppFile:
    """The content of app.toml."""
    return read_tables(FOLDER / "app.toml", AppFile)


@dataclass(frozen=True, kw_only=True)
class Component(Fact):
    """A library whose makers an app must name; see the comments of components.toml."""

    license: str
    copyright: tuple[str, ...]
    texts: tuple[str, ...]
    package: str = ""
    file: str = ""


@cache
def components() -> tuple[Component, ...]:
    """Return the components of packages."""
    return read_rows(FOLDER / "components.toml", "component", Component)


def license_text(name: str) -> str:
    """Return the license text that a component names in `texts`."""
    return (Path(__file__).parent / "license_texts" / f"{name}.txt").read_text("utf-8")


@dataclass(frozen=True, kw_only=True)
class Shared(Fact):
    """A package that apps may use too; SwiftPM chooses one version: low <= version < high."""

    low: str
    high: str


@dataclass(frozen=True, kw_only=True)
class RefusedPackage(Fact):
    """A package that cannot be in the same app as a generated package."""

    what: str
    remedy: str


@dataclass(frozen=True)
class CoexistenceFile:
    """The content of coexistence.toml."""

    replaced: tuple[Fact, ...]
    shared: tuple[Shared, ...]
    refused: tuple[RefusedPackage, ...]


@cache
def coexistence() -> CoexistenceFile:
    """Return the content of coexistence.toml."""
    return read_tables(FOLDER / "coexistence.toml", CoexistenceFile)


def identity(location: str) -> str:
    """Return the name by which SwiftPM identifies a package: the last part of its address."""
    last = re.split(r"[/:\\]", location.rstrip("/"))[-1]
    return last.removesuffix(".git").lower()
