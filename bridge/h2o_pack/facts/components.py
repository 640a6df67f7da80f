"""facts/components.toml: the code that an app with a generated package is built of."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from h2o_pack.facts import FOLDER, upstream_versions
from h2o_pack.files.toml import read_tables


@dataclass(frozen=True)
class Component:
    """A work that its makers want named; see the head of components.toml."""

    name: str
    license: str
    copyright: tuple[str, ...]
    texts: tuple[str, ...]
    source: str
    measured: bool
    package: str = ""
    file: str = ""
    upstream_version: str = ""


@dataclass(frozen=True)
class ComponentsFile:
    """components.toml."""

    component: tuple[Component, ...]


@cache
def components(upstream_version: str = "") -> tuple[Component, ...]:
    """Return what packages on an upstream version are built of; "" is the default one."""
    chosen = upstream_version or next(iter(upstream_versions()))
    found = read_tables(FOLDER / "components.toml", ComponentsFile).component
    return tuple(each for each in found if each.upstream_version in ("", chosen))


def license_text(name: str) -> str:
    """Return a text that `texts` of a component name."""
    return (FOLDER / "license_texts" / f"{name}.txt").read_text("utf-8")
