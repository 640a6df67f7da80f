"""Facts that change with the world: TOML files, read into frozen dataclasses.

The dataclasses are the schema: a key that is missing, unknown or of another
type is an error.
"""

from __future__ import annotations

import sys
from dataclasses import MISSING, dataclass, fields
from functools import cache
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Pin:
    """One upstream version; `commit` where it is a git repository.

    A submodule names the pin that it is in as `parent`, and its `path` there.
    """

    name: str
    version: str
    source: str
    measured: bool
    commit: str = ""
    parent: str = ""
    path: str = ""

    @property
    def place(self) -> str:
        """Where its files lie in a folder with all packages."""
        return f"{self.parent}/{self.path}" if self.parent else self.name


@dataclass(frozen=True)
class KnownModel:
    """A model with a short name; it lies on the hub, in this package or in a folder.

    Shapes are those of ModelConfig, 0 where they are not stated. weights_bytes: of the
    language model's weights; measured: whether that is a published size.
    """

    name: str
    source: str
    hub: str = ""
    revision: str = ""
    embedded: str = ""
    folder: str = ""
    model_type: str = ""
    layers: int = 0
    evicting_layers: int = 0
    heads: int = 0
    kv_heads: int = 0
    head_dim: int = 0
    hidden_size: int = 0
    feed_forward: int = 0
    vocabulary: int = 0
    context: int = 0
    tied_embeddings: bool = False
    weights_bytes: int = 0
    measured: bool = False


@dataclass(frozen=True)
class Architecture:
    """A supported model type and the upstream code that implements it.

    scores: whether the Swift attention passes through the cache.
    """

    model_type: str
    mlx_lm: str
    swift: str
    scores: bool
    measured: bool
    source: str


@dataclass(frozen=True)
class Refused:
    """Model types that are known and cannot be served."""

    model_types: tuple[str, ...]
    reason: str
    source: str


@dataclass(frozen=True)
class Unsplit:
    """A model type that upstream gives its whole prompt at once."""

    model_type: str
    swift: str
    measured: bool


@dataclass(frozen=True)
class Requirement:
    """The oldest version of a tool that serves."""

    name: str
    version: str
    source: str
    measured: bool


@dataclass(frozen=True)
class Limit:
    """A size in bytes that Apple's store does not take more than."""

    name: str
    bytes: int
    what: str
    source: str
    measured: bool


Fact = TypeVar("Fact")


def read_table(path: Path, key: str, kind: type[Fact]) -> tuple[Fact, ...]:
    """Read the `[[key]]` tables of a TOML file as `kind`, strictly."""
    return tables(toml.loads(path.read_text("utf-8")), key, kind, str(path))


def tables(
    document: Mapping[str, Any], key: str, kind: type[Fact], where: str
) -> tuple[Fact, ...]:
    """Turn a document's `[[key]]` tables into `kind`; ValueError on any mismatch."""
    known = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
    result = []
    for number, row in enumerate(document.get(key, []), start=1):
        place = f"{where}: [[{key}]] number {number}"
        for name, value in row.items():
            if name not in known:
                raise ValueError(f"{place} has an unknown key {name!r}")
            if not fits(value, str(known[name].type)):
                raise ValueError(f"{place}: {name} should be of type {known[name].type}")
        for field in known.values():
            if field.default is MISSING and field.name not in row:
                raise ValueError(f"{place} lacks {field.name!r}")
        given = {name: tuple(v) if isinstance(v, list) else v for name, v in row.items()}
        result.append(kind(**given))
    return tuple(result)


def fits(value: object, type_name: str) -> bool:
    """Whether a TOML value is of a field's type; lists of strings or numbers are tuples."""
    if isinstance(value, list):
        return any(
            type_name == f"tuple[{kind.__name__}, ...]" and all(type(x) is kind for x in value)
            for kind in (str, int)
        )
    if type_name == "float" and type(value) is int:
        return True
    return type(value).__name__ == type_name


def by_name(file: str, key: str, kind: type[Fact], name: str = "name") -> Mapping[str, Fact]:
    """Read the `[[key]]` tables of a file of this folder, by the field `name`."""
    found = read_table(FOLDER / file, key, kind)
    return MappingProxyType({getattr(each, name): each for each in found})


@cache
def pins() -> Mapping[str, Pin]:
    """Upstream pins by name."""
    return by_name("upstream.toml", "pin", Pin)


def submodules(name: str) -> tuple[Pin, ...]:
    """Return the pins that are submodules of a pin."""
    return tuple(pin for pin in pins().values() if pin.parent == name)


def with_submodules(names: Iterable[str]) -> tuple[Pin, ...]:
    """Return the pins of these names, each followed by its submodules."""
    return tuple(pin for name in names for pin in (pins()[name], *submodules(name)))


@cache
def known_models() -> Mapping[str, KnownModel]:
    """The models that have a short name, by that name."""
    return by_name("models.toml", "model", KnownModel)


@cache
def architectures() -> Mapping[str, Architecture]:
    """Supported architectures by model type."""
    return by_name("architectures.toml", "architecture", Architecture, "model_type")


@cache
def refused_architectures() -> Mapping[str, Refused]:
    """Architectures that are known and cannot be served, by model type."""
    found = read_table(FOLDER / "architectures.toml", "refused", Refused)
    return MappingProxyType({name: each for each in found for name in each.model_types})


@cache
def unsplit_prompts() -> Mapping[str, Unsplit]:
    """Model types whose prompt mlx-swift-lm does not split, by their name."""
    return by_name("prefill.toml", "unsplit", Unsplit, "model_type")


@cache
def requirements() -> Mapping[str, Requirement]:
    """The oldest versions of tools that serve, by the tool's name."""
    return by_name("requirements.toml", "requirement", Requirement)


@cache
def store_limits() -> Mapping[str, Limit]:
    """Apple's limits by name."""
    return by_name("store.toml", "limit", Limit)
