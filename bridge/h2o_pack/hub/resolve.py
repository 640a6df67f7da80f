"""Finds a model by alias, by folder or by its id on the Hugging Face hub."""

from __future__ import annotations

import re
from pathlib import Path

from h2o_pack.architectures.model import Model
from h2o_pack.errors import ExitCode, UserError, nearest
from h2o_pack.facts import KnownModel
from h2o_pack.hub.address import model_of_address
from h2o_pack.models.catalogue import as_model, catalogue, find
from h2o_pack.models.local import from_folder
from h2o_pack.naming import readable

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
REVISION = re.compile(r"[\w.+-]+(/[\w.+-]+)*", re.ASCII)
BUNDLED = Path(__file__).parents[1] / "models"


def resolve(
    name: str,
    *,
    revision: str = "",
    assume_full_attention: bool = False,
    own: Path | None = None,
    stated: bool = False,
) -> Model:
    """Find a model and describe it, by its metadata only.

    Args:
        name: an alias of the catalogue, a folder, or an id or a page's address on the hub;
            `@REVISION` may follow an alias or an id.
        revision: branch, tag or commit on the hub.
        assume_full_attention: take an unknown architecture for one whose layers all
            attend to the whole context.
        own: the user's own catalogue, see `catalogue`.
        stated: take what this machine has kept of a model of the catalogue, or what the
            catalogue states, and do not ask the hub, unless a revision is given.

    Raises:
        UserError: the model is unknown, unreadable or unsupported; several at once where
            more than one thing is wrong.

    """
    name = model_of_address(name)
    known = find(name, own)
    folder = local_folder(name) if known is None else None
    if known is None and folder is None:
        name, revision = split_revision(name, revision)
        known = find(name, own)
    if known is not None and not known.hub:
        place = BUNDLED / known.bundled if known.bundled else Path(known.folder)
        return from_folder(known.name, place, assume_full_attention=assume_full_attention)
    if folder is not None:
        if revision:
            raise UserError(
                f"{name!r} is a folder, which has no revisions",
                remedy="Leave --revision out, or give an id on the hub.",
                code=ExitCode.USAGE,
            )
        # A name that is not UTF-8 could be written neither to the terminal nor to the lock.
        name = readable(folder.name)
        return from_folder(name, folder, assume_full_attention=assume_full_attention)
    if name.startswith((".", "/", "~")):
        raise UserError(
            f"{name!r} is not a folder",
            remedy="Give the folder that holds config.json and the weights.",
            code=ExitCode.MODEL,
        )
    hub_id = known.hub if known is not None else name
    if not HUB_ID.fullmatch(hub_id) or ".." in hub_id or "--" in hub_id:
        raise unknown(name, own)
    from h2o_pack.hub.describe import from_caches, from_hub  # folders need no hub

    if known is not None and stated and not revision:
        kept = from_caches(hub_id, known.revision or "main", assume_full_attention=False)
        found = kept or as_model(known)
        if found is not None:
            return found
    return from_hub(
        hub_id,
        revision or (known.revision if known is not None else ""),
        assume_full_attention=assume_full_attention,
    )


def listed(own: Path | None = None) -> tuple[tuple[KnownModel, Model | None], ...]:
    """Return the catalogue, each entry with what is known of its model without asking."""
    return tuple((each, bundled(each) or as_model(each)) for each in catalogue(own))


def bundled(known: KnownModel) -> Model | None:
    """Describe a model that is in this package."""
    return from_folder(known.name, BUNDLED / known.bundled) if known.bundled else None


def split_revision(name: str, revision: str) -> tuple[str, str]:
    """Split NAME@REVISION; an explicit revision must not contradict it."""
    base, at, inside = name.partition("@")
    given = inside if at else revision
    if at and revision and revision != inside:
        raise UserError(
            f"the model is given as revision {inside!r} and --revision is {revision!r}",
            remedy="Give one of them.",
            code=ExitCode.USAGE,
        )
    if (at or revision) and (not REVISION.fullmatch(given) or ".." in given):
        raise UserError(
            f"{given!r} is no revision",
            remedy="Give a branch, a tag or a commit id.",
            code=ExitCode.USAGE,
        )
    return base, given


def unknown(name: str, own: Path | None) -> UserError:
    """Make the error for a name that leads nowhere."""
    names = [each.name for each in catalogue(own)]
    return UserError(
        f"there is no model {name!r}",
        remedy=f"{nearest(name[:200], names)}Give an alias ({', '.join(names)}), a folder, "
        "or an id on huggingface.co such as mlx-community/Qwen3-4B-4bit.",
        code=ExitCode.MODEL,
    )


def local_folder(name: str) -> Path | None:
    """Return the folder that `name` is the path of, or None."""
    try:
        path = Path(name).expanduser()
        return path.resolve() if name and path.is_dir() else None
    except (OSError, RuntimeError, ValueError):  # a name too long, an unknown ~user, a NUL
        return None
