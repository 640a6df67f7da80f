"""Package.resolved: the versions that SwiftPM or Xcode chose last."""

from __future__ import annotations

from pathlib import Path

import msgspec

from h2o_pack.coexistence.app import App, Dependency
from h2o_pack.facts.coexistence import identity
from h2o_pack.vendoring.resolved import NAME

IN_WORKSPACE = f"xcshareddata/swiftpm/{NAME}"


class State(msgspec.Struct):
    """What was chosen."""

    version: str | None = None
    branch: str | None = None
    revision: str | None = None


class Pin(msgspec.Struct):
    """A package, with the keys of all versions of the file."""

    state: State
    location: str = ""
    repositoryURL: str = ""  # noqa: N815  SwiftPM's name


class Pins(msgspec.Struct):
    """Where the first version of the file has them."""

    pins: list[Pin] = []


class Resolved(Pins):
    """The file."""

    object: Pins = msgspec.field(default_factory=Pins)


def read_resolved(folder: Path, path: Path) -> App:
    """Return the packages that a file names; no app asks for those that it alone names."""
    name = path.relative_to(folder).as_posix()
    try:
        read = msgspec.json.decode(path.read_bytes(), type=Resolved)
    except (OSError, msgspec.DecodeError, RecursionError) as error:
        return App(folder, unread={name: f"it is not as SwiftPM writes it: {error}"})
    return App(folder, (name,), tuple(map(dependency, read.pins + read.object.pins)))


def dependency(pin: Pin) -> Dependency:
    """Return one package of the file."""
    where, state = pin.location or pin.repositoryURL, pin.state
    chosen = state.version or state.branch or (state.revision or "")[:12]
    return Dependency(identity(where), where, resolved=chosen, direct=False)
