"""Finds a model by alias, folder, id or page address, and reads its small files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from h2o_pack.errors import ExitCode, UserError, nearest, shown, unreadable
from h2o_pack.facts import KnownModel
from h2o_pack.files.paths import local_file, metadata_folder
from h2o_pack.model import Model
from h2o_pack.models.catalogue import as_model, catalogue, find
from h2o_pack.models.files import from_folder
from h2o_pack.naming import readable
from h2o_pack.progress import ProgressReporter
from h2o_pack.spec import ModelSpec, local_folder

HOSTS = ("huggingface.co", "www.huggingface.co", "hf.co")
WITH_REVISION = ("tree", "blob", "commit", "resolve")
OTHER_KINDS = ("datasets", "spaces", "collections", "papers")
ID_PARTS = 2


def model_of_address(name: str) -> str:
    """Return ID or ID@REVISION for a page of a model; anything else stays as it is.

    The pages of a branch, a commit and a file name their revision.

    Raises:
        UserError: the address is another site's, or of something that is not a model.

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
    offline = known is not None and stated and not revision
    found = as_model(known) if known is not None and offline else None
    if found is not None and not is_kept(hub_id):
        return found
    from h2o_pack.hub.describe import from_caches, from_hub  # folders need no hub

    if known is not None and offline:
        kept = from_caches(hub_id, known.revision or "main", assume_full_attention=False)
        found = kept or found
        if found is not None:
            return found
    return from_hub(
        hub_id,
        revision or (known.revision if known is not None else ""),
        assume_full_attention=assume_full_attention,
    )


def is_kept(hub_id: str) -> bool:
    """Whether this machine has anything of a model of the hub."""
    from huggingface_hub import constants

    folder = Path(constants.HF_HUB_CACHE, f"models--{hub_id.replace('/', '--')}")
    return folder.is_dir() or metadata_folder(hub_id).is_dir()


def find_model(spec: ModelSpec, say: ProgressReporter, *, stated: bool = False) -> Model:
    """Find the model of a spec, as `resolve` does."""
    name = spec.model or ""
    say(f"reading the headers of {name}")
    return resolve(
        name,
        revision=spec.revision,
        assume_full_attention=spec.assume_full_attention,
        stated=stated,
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


def read_small(model: Model, largest: Mapping[str, int]) -> dict[str, bytes] | None:
    """Read those files that a model has; None where the hub would know and cannot be asked.

    Args:
        model: in a folder, or on the hub.
        largest: the bytes that a file may have, by its name.

    Raises:
        UserError: one is larger, or cannot be read.

    """
    sizes = {file.path: file.size for file in model.files if file.path in largest}
    for name, size in sizes.items():
        if size > largest[name]:
            raise unreadable(model.id, f"{name} is larger than {largest[name] >> 20} MiB")
    if model.folder is None:
        return read_from_hub(model, sizes)
    return {name: local_file(model.folder, name).read_bytes() for name in sizes}


def read_from_hub(model: Model, sizes: Mapping[str, int]) -> dict[str, bytes] | None:
    """Ask the hub for files of so many bytes; None where it cannot be asked."""
    from h2o_pack.hub.client import Repository, UnreachableError

    repository = Repository(model.id, model.commit)
    try:
        return {name: repository.read(name, 0, n) if n else b"" for name, n in sizes.items()}
    except UnreachableError:
        return None
