"""The catalogue of known models: the project's own, extended by the user's."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from h2o_pack.errors import ExitCode, Problems, UserError
from h2o_pack.facts import KnownModel, known_models, tables, toml

VARIABLE = "H2O_PACK_MODELS"
PLACES = ("hub", "embedded", "folder")


def catalogue(own: Path | None = None) -> tuple[KnownModel, ...]:
    """Return all known models, the user's instead of the project's of the same name.

    Args:
        own: the user's file; otherwise $H2O_PACK_MODELS, or models.toml in the user's
            configuration folder if it is there.

    Raises:
        UserError: the file cannot be read or an entry does not fit the schema.

    """
    models = {each.name.lower(): each for each in known_models().values()}
    path = own or users_file()
    if path is not None:
        models |= {each.name.lower(): each for each in read_own(path)}
    return tuple(models.values())


def find(name: str, own: Path | None = None) -> KnownModel | None:
    """Return the model of a short name, in whatever case."""
    listed = catalogue(own)
    return next((each for each in listed if each.name.lower() == name.lower()), None)


def users_file() -> Path | None:
    """Return the user's own catalogue, if there is one."""
    given = os.environ.get(VARIABLE)
    if given:
        return Path(given).expanduser()
    path = config_folder() / "models.toml"
    return path if path.is_file() else None


def config_folder() -> Path:
    """Return where users keep settings of h2o-pack, by the system's custom."""
    given = os.environ.get("XDG_CONFIG_HOME")
    if sys.platform == "darwin" and not given:
        return Path.home() / "Library/Application Support/h2o-pack"
    return Path(given or Path.home() / ".config") / "h2o-pack"


def read_own(path: Path) -> tuple[KnownModel, ...]:
    """Read a user's catalogue; all entries that do not fit are told together."""
    try:
        text = path.read_text("utf-8")
        document = toml.loads(text)
    except OSError as error:
        raise unfit(path, f"the catalogue cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # not TOML, or not UTF-8
        raise unfit(path, f"the catalogue is not TOML: {error}") from error
    problems = Problems()
    for key in document:
        if key != "model":
            problems.found.append(unfit(path, f"unknown key {key!r}: models are [[model]]"))
    rows = document.get("model", [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise unfit(path, "models are tables that begin with [[model]]")
    begins = [
        number
        for number, line in enumerate(text.splitlines(), start=1)
        if line.replace(" ", "").startswith("[[model]]")
    ]
    found: dict[str, KnownModel] = {}
    for number, row in enumerate(rows):
        where = f"{path}:{begins[number]}" if number < len(begins) else str(path)
        with problems.caught():
            model = read_entry(row, where, path.parent)
            if model.name.lower() in found:
                raise unfit(where, f'[[model]] "{model.name}" is given twice')
            found[model.name.lower()] = model
    problems.refuse()
    return tuple(found.values())


def read_entry(row: dict[str, object], where: str, beside: Path) -> KnownModel:
    """Read one model; a folder is relative to the file."""
    try:
        (model,) = tables({"model": [row]}, "model", KnownModel, "")
    except ValueError as error:
        said = str(error).partition("number 1")[2].lstrip(": ")
        raise unfit(where, f"[[model]] {said}") from error
    if not model.name.strip() or "@" in model.name:
        raise unfit(where, f"[[model]] has the name {model.name!r}")
    places = [place for place in PLACES if getattr(model, place)]
    if len(places) != 1 or model.embedded:
        raise unfit(where, f'[[model]] "{model.name}" should give either hub or folder')
    negative = [name for name, value in vars(model).items() if type(value) is int and value < 0]
    if negative:
        raise unfit(where, f'[[model]] "{model.name}": {negative[0]} is below 0')
    if not model.folder:
        return model
    folder = str(beside / Path(model.folder).expanduser())
    return KnownModel(**{**vars(model), "folder": folder})


def unfit(where: object, what: str) -> UserError:
    """Make the error for a catalogue that cannot be used."""
    return UserError(
        what,
        where=str(where),
        remedy="Correct the file; `h2o-pack models --help` says where its keys are explained.",
        code=ExitCode.USAGE,
    )
