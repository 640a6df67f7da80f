"""An app as its manifest, its Xcode projects and its resolved versions describe it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

Version = tuple[int, ...]
NUMBERS = re.compile(r"\d+(?:\.\d+)*")


def version(text: str) -> Version:
    """Return "602.0.0-beta" as (602, 0, 0); () where there is no number."""
    found = NUMBERS.match(text.removeprefix("v"))
    return tuple(int(part[:9]) for part in found[0].split(".")) if found else ()


@dataclass(frozen=True)
class Requirement:
    """The versions that somebody takes: at least `low`, less than `high`.

    text: for people. Of a branch or a commit the two are empty.
    """

    text: str
    low: Version = ()
    high: Version = ()

    def allows(self, other: Requirement) -> bool:
        """Whether a version suits both; nothing is known of a branch."""
        known = self.high and other.high
        return not known or max(self.low, other.low) < min(self.high, other.high)


def between(low: str, high: str) -> Requirement:
    """Return the versions from one to before another."""
    return Requirement(f"{low} ..< {high}", version(low), version(high))


def exactly(text: str) -> Requirement:
    """Return one version, or a name that is none."""
    known = version(text)
    return Requirement(text, known, (*known, 0) if known else ())


def compatible(text: str) -> Requirement:
    """Return the versions that promise the same interface as one: up to the next major."""
    major, minor, *_ = (*version(text), 0, 0)
    return between(text, f"{major + 1}.0.0" if major else f"0.{minor + 1}.0")


@dataclass(frozen=True)
class Dependency:
    """A package that the app uses.

    identity: as SwiftPM has it, by which it tells packages apart. folder: where it is, for one
    of a folder. resolved: the version, or "", of the last resolution. direct: whether the app
    asks for it itself.
    """

    identity: str
    location: str
    requirement: Requirement | None = None
    folder: Path | None = None
    resolved: str = ""
    direct: bool = True


@dataclass(frozen=True)
class App:
    """What was read of an app, from which files, and why others could not be read."""

    folder: Path
    read: tuple[str, ...] = ()
    dependencies: tuple[Dependency, ...] = ()
    modules: tuple[str, ...] = ()
    unread: dict[str, str] = field(default_factory=dict)

    def __add__(self, other: App) -> App:
        """Return what two of its files say together."""
        return App(
            self.folder,
            self.read + other.read,
            joined((*self.dependencies, *other.dependencies)),
            tuple(dict.fromkeys(self.modules + other.modules)),
            self.unread | other.unread,
        )


def joined(found: Iterable[Dependency]) -> tuple[Dependency, ...]:
    """Join what was found of the same package: a requirement first, then what was resolved."""
    by_identity: dict[str, Dependency] = {}
    for each in found:
        known = by_identity.get(each.identity)
        if known is None:
            by_identity[each.identity] = each
        elif each.direct and known.direct:  # two projects: the second may ask for another
            by_identity[f"{each.identity} {each.location} {each.requirement}"] = each
        else:
            first, second = (known, each) if known.direct else (each, known)
            by_identity[each.identity] = replace(first, resolved=second.resolved)
    return tuple(by_identity.values())
