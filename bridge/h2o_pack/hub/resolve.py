"""Finds a model by short name, folder, id or address, and describes it without its weights."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from h2o_pack.errors import ExitCode, Problems, UserError, shown
from h2o_pack.facts import KnownModel
from h2o_pack.hub.contents import hub_contents, kept_contents
from h2o_pack.model import Model
from h2o_pack.models.catalogue import as_model, catalogue, find, unknown
from h2o_pack.models.files import Contents, from_folder, inspect
from h2o_pack.naming import readable
from h2o_pack.progress import ProgressReporter, silent
from h2o_pack.spec import CacheSpec, ModelSpec

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
BUNDLED = Path(__file__).parents[1] / "models"
Place = Model | Contents | tuple[str, Path, str]
"""A model from the catalogue, the hub's description of it, or an id, folder and commit."""


def resolve(name: str, *, revision: str = "", assume_full_attention: bool = False) -> Model:
    """Find the model of a name and describe it, as `find_model` does."""
    return find_model(ModelSpec(name, CacheSpec(), revision, assume_full_attention))


def find_model(
    spec: ModelSpec,
    say: ProgressReporter = silent,
    *,
    own: Path | None = None,
    stated: bool = False,
) -> Model:
    """Find a model and describe it, by its metadata only.

    Args:
        spec: names a model by its short name in the catalogue, a folder, or an id or the
            address of a page on the hub; `@REVISION` may follow a short name or an id.
        say: shows the progress.
        own: the user's own catalogue, see `catalogue`.
        stated: for a model of the catalogue without a revision, use what this machine has
            stored or what the catalogue states, and do not ask the hub.

    Raises:
        UserError: the model is unknown, unreadable or unsupported; several errors together.

    """
    say(f"reading the headers of {spec.model}")
    assume = spec.assume_full_attention
    place = place_of(spec, own, stated=stated)
    if isinstance(place, Model):
        return place
    if isinstance(place, Contents):
        from h2o_pack.hub.download import downloaded

        problems, folder = Problems(f"{place.id}@{place.commit[:12]}"), downloaded(place)
        return inspect(place, problems, folder=folder, assume_full_attention=assume)
    model_id, folder, commit = place
    return from_folder(model_id, folder, commit=commit, assume_full_attention=assume)


def place_of(spec: ModelSpec, own: Path | None, *, stated: bool) -> Place:
    """Return the description of a model, or its folder; see `find_model`."""
    revision, name = spec.revision, model_of_address(spec.model or "")
    base, at, inside = name.partition("@")
    entry = find(base, own)
    folder = spec.folder if name == spec.model and (at or entry is None) else None
    if folder is not None:
        if revision:
            raise UserError(
                f"{name!r} is a local folder, which has no revisions",
                remedy="Leave out --revision, or give an id on the hub.",
                code=ExitCode.USAGE,
            )
        # A name that is not UTF-8 cannot be written to the terminal or to the lock.
        return readable(folder.name), folder, ""
    if at and revision not in ("", inside):
        raise UserError(
            f"--model names revision {inside!r} and --revision names {revision!r}",
            remedy="Give only one of them.",
            code=ExitCode.USAGE,
        )
    if entry is not None and not entry.hub:
        folder = BUNDLED / entry.bundled if entry.bundled else Path(entry.folder)
        return entry.name, folder, ""
    if entry is None and base.startswith((".", "/", "~")):
        raise UserError(
            f"{name!r} is not a folder",
            remedy="Give the folder that contains config.json and the weights.",
            code=ExitCode.MODEL,
        )
    hub_id = base if entry is None else entry.hub
    if not HUB_ID.fullmatch(hub_id) or ".." in hub_id or "--" in hub_id:
        raise unknown(base, own)
    branch = inside if at else revision or (entry and entry.revision) or "main"
    if entry is not None and stated and not (at or revision):
        place = kept_contents(hub_id, branch) or as_model(entry)
    else:
        place = None
    assume = spec.assume_full_attention
    place = place or hub_contents(hub_id, branch, assume_full_attention=assume)
    return (hub_id, place, place.name) if isinstance(place, Path) else place


HOSTS = ("huggingface.co", "www.huggingface.co", "hf.co")
WITH_REVISION = ("tree", "blob", "commit", "resolve")
OTHER_KINDS = ("datasets", "spaces", "collections", "papers")
ID_PARTS = 2


def model_of_address(name: str) -> str:
    """Return ID or ID@REVISION for the page of a model; anything else unchanged.

    The pages of a branch, a commit or a file contain their revision.

    Raises:
        UserError: the address is on another site, or not that of a model.

    """
    text = name.strip()
    has_scheme = text.startswith(("https://", "http://"))
    if not has_scheme and not text.startswith(tuple(f"{host}/" for host in HOSTS)):
        return name
    address = urlsplit(text if has_scheme else f"https://{text}")
    parts = [unquote(part) for part in address.path.split("/") if part]
    is_model = len(parts) >= ID_PARTS and parts[0] not in OTHER_KINDS
    if address.hostname not in HOSTS or not is_model:
        raise UserError(
            f"{shown(name)} is not the address of a model on huggingface.co",
            remedy="Give the page of a model, or its id such as mlx-community/Qwen3-4B-4bit.",
            code=ExitCode.MODEL,
        )
    model = "/".join(parts[:ID_PARTS])
    rest = parts[ID_PARTS:]
    if len(rest) > 1 and rest[0] in WITH_REVISION:
        return f"{model}@{rest[1]}"
    return model


def listed(own: Path | None = None) -> tuple[tuple[KnownModel, Model | None], ...]:
    """Return the catalogue, each entry with its stored description, without asking the hub."""
    return tuple((entry, bundled(entry) or as_model(entry)) for entry in catalogue(own))


def bundled(entry: KnownModel) -> Model | None:
    """Describe a model that h2o-pack contains."""
    return from_folder(entry.name, BUNDLED / entry.bundled) if entry.bundled else None
