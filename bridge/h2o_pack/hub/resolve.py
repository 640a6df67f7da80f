"""Finds a model by alias, folder, id or page address, and reads its small files.

Of a model on the Hugging Face hub it reads what describes it, without its weights, and keeps
that.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote, unquote, urlsplit

from h2o_pack.errors import ExitCode, Problems, UserError, shown, unreadable
from h2o_pack.facts import KnownModel
from h2o_pack.files.paths import local_file, metadata_folder, why_unsafe
from h2o_pack.files.text import CONFIG_BYTES, INDEX_BYTES, parse_object
from h2o_pack.model import Model, ModelFile
from h2o_pack.models import files
from h2o_pack.models.catalogue import as_model, catalogue, find, unknown
from h2o_pack.models.config import describe
from h2o_pack.models.files import (
    INDEX,
    LENGTH,
    Contents,
    check_files,
    from_folder,
    header_length,
    inspect,
    parse_header,
    weight_map,
)
from h2o_pack.naming import readable
from h2o_pack.progress import ProgressReporter
from h2o_pack.spec import ModelSpec, local_folder

if TYPE_CHECKING:
    from h2o_pack.hub.client import Listed, Repository

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
    hub_id = name if known is None else known.hub
    if not HUB_ID.fullmatch(hub_id) or ".." in hub_id or "--" in hub_id:
        raise unknown(name, own)
    if known is not None and stated and not revision:
        found = as_model(known)
        revision = known.revision or "main"
        if is_kept(hub_id):
            found = from_caches(hub_id, revision, assume_full_attention=False) or found
        if found is not None:
            return found
    elif known is not None:
        revision = revision or known.revision
    return from_hub(hub_id, revision, assume_full_attention=assume_full_attention)


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


@dataclass(frozen=True)
class Entry:
    """The JSON of an entry."""

    contents: Contents
    format: Literal[4] = 4


def load_contents(hub_id: str, commit: str) -> Contents | None:
    """Return what is kept of a model at a commit, None if it is not or is damaged."""
    import msgspec

    try:
        first, _, body = entry_path(hub_id, commit).read_bytes().partition(b"\n")
        if hashlib.sha256(body).hexdigest().encode() != first:
            return None
        given = msgspec.convert(json.loads(body), Entry).contents
    except (OSError, ValueError):
        return None
    return given if (given.id, given.commit) == (hub_id, commit) else None


def store_contents(contents: Contents) -> None:
    """Keep what describes a model. A cache that cannot be written is no error."""
    import msgspec

    # By json, as a configuration may have Infinity.
    body = json.dumps(msgspec.to_builtins(Entry(contents)), separators=(",", ":")).encode()
    digest = hashlib.sha256(body).hexdigest().encode()
    write_if_possible(entry_path(contents.id, contents.commit), digest + b"\n" + body)


def last_commit(hub_id: str, revision: str) -> str:
    """Return the commit that a branch was at when it was last asked for, or ""."""
    from h2o_pack.hub.client import COMMIT

    try:
        commit = branch_path(hub_id, revision).read_text("ascii")
    except (OSError, ValueError):
        return ""
    return commit if COMMIT.fullmatch(commit) else ""


def remember(hub_id: str, revision: str, commit: str) -> None:
    """Keep the commit that a branch is at."""
    if last_commit(hub_id, revision) != commit:
        write_if_possible(branch_path(hub_id, revision), commit.encode())


def entry_path(hub_id: str, commit: str) -> Path:
    """Return the file of a model at a commit."""
    return metadata_folder(hub_id) / f"{commit}.json"


def branch_path(hub_id: str, revision: str) -> Path:
    """Return the file with the commit of a branch."""
    return metadata_folder(hub_id) / "branches" / quote(revision, safe="")


def write_if_possible(path: Path, data: bytes) -> None:
    """Write a file whole or not at all; nothing happens where it cannot be written."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


def from_hub(hub_id: str, revision: str = "", *, assume_full_attention: bool = False) -> Model:
    """Describe a model of the hub, pinned to a commit.

    What was fetched once is kept; then one small request tells whether the branch has
    moved, and none if `revision` is a commit. Where the hub cannot be asked, what is kept
    or what huggingface_hub has downloaded serves.

    Raises:
        UserError: the hub refuses or cannot be asked, or all that is wrong with the model.

    """
    from h2o_pack.hub.client import COMMIT, Repository, UnreachableError

    asked = revision or "main"
    try:
        commit = asked if COMMIT.fullmatch(asked) else Repository(hub_id, asked).commit()
        contents = load_contents(hub_id, commit)
        if contents is None:
            contents = fetch(hub_id, commit, assume_full_attention=assume_full_attention)
            store_contents(contents)
    except UnreachableError:
        known = from_caches(hub_id, asked, assume_full_attention=assume_full_attention)
        if known is None:
            raise
        return known
    if commit != asked:
        remember(hub_id, asked, commit)
    return described(contents, assume_full_attention=assume_full_attention)


def described(contents: Contents, *, assume_full_attention: bool) -> Model:
    """Describe a model by its contents, in its folder if it has been downloaded."""
    from h2o_pack.hub.download import downloaded

    folder = downloaded(contents)
    return inspect(
        contents,
        f"{contents.id}@{contents.commit[:12]}",
        folder=folder,
        assume_full_attention=assume_full_attention,
    )


def from_caches(hub_id: str, revision: str, *, assume_full_attention: bool) -> Model | None:
    """Describe a model without the hub; None if nothing of it is kept."""
    from huggingface_hub import try_to_load_from_cache

    from h2o_pack.hub.client import COMMIT

    commit = revision if COMMIT.fullmatch(revision) else ""
    for each in (commit, last_commit(hub_id, revision)):
        contents = load_contents(hub_id, each) if each else None
        if contents is not None:
            return described(contents, assume_full_attention=assume_full_attention)
    kept = try_to_load_from_cache(hub_id, files.CONFIG, revision=revision)
    if not isinstance(kept, str):
        return None
    folder = Path(kept).parent
    return from_folder(
        hub_id, folder, commit=folder.name, assume_full_attention=assume_full_attention
    )


def fetch(hub_id: str, commit: str, *, assume_full_attention: bool) -> Contents:
    """Ask the hub for all that describes a model at a commit."""
    from h2o_pack.hub.client import Repository

    repository = Repository(hub_id, commit)
    problems = Problems(f"{hub_id}@{commit[:12]}")
    listed = needed(repository.listing(), problems)
    files.check_complete(listed, problems)
    problems.refuse()
    config = parse_object(
        small(repository, listed[files.CONFIG], CONFIG_BYTES, problems),
        files.CONFIG,
        f"{problems.where}/{files.CONFIG}",
    )
    with problems.caught():  # refused before headers are asked for
        describe(
            config,
            f"{problems.where}/{files.CONFIG}",
            assume_full_attention=assume_full_attention,
        )
    mapping = None
    if INDEX in listed:
        with problems.caught():
            data = small(repository, listed[INDEX], INDEX_BYTES, problems)
            document = parse_object(data, INDEX, problems.where, INDEX_BYTES)
            mapping = weight_map(document, problems)
            names = {name for name in listed if files.holds_weights(name)}
            check_files(mapping, dict.fromkeys(names), problems)
    problems.refuse()
    headers = {
        file: header(repository, file, problems)
        for file in listed.values()
        if files.holds_weights(file.path)
    }
    tensors = {}
    for file, data in headers.items():
        if not data:  # its problem was noted
            continue
        with problems.caught():
            tensors[file.path] = parse_header(data, file.size, file.path, problems.where)
    problems.refuse()
    return Contents(hub_id, commit, config, mapping, tensors, tuple(listed.values()))


def needed(listing: tuple[Listed, ...], problems: Problems) -> dict[str, ModelFile]:
    """Return what packages need of a listing, by path; impossible entries are noted."""
    from h2o_pack.hub.client import SHA256

    found = {}
    for each in listing:
        reason = why_unsafe(each.path)
        if reason is not None:
            problems.add(
                f"the hub lists a file {shown(each.path)}, which {reason}",
                "Choose another model; nothing of this one was downloaded.",
            )
        elif files.belongs(each.path):
            if isinstance(each.size, bool) or not isinstance(each.size, int) or each.size < 0:
                problems.add(f"the hub lists {each.path} without a size")
            elif each.sha256 and not SHA256.fullmatch(str(each.sha256)):
                problems.add(f"the hub lists {each.path} with something else than a sha256")
            else:
                found[each.path] = ModelFile(each.path, each.size, each.sha256)
    return dict(sorted(found.items()))


def small(repository: Repository, file: ModelFile, most: int, problems: Problems) -> bytes:
    """Read a whole file of at most `most` bytes."""
    if file.size > most:
        problems.fail(f"{file.path} is larger than {most >> 20} MiB")
    return repository.read(file.path, 0, file.size) if file.size else b""


def header(repository: Repository, file: ModelFile, problems: Problems) -> bytes:
    """Read the header of a safetensors file by two ranges of it, b"" if it has none."""
    first = repository.read(file.path, 0, LENGTH) if file.size >= LENGTH else b""
    length = 0
    with problems.caught():
        length = header_length(first, file.size, file.path, problems.where)
    return repository.read(file.path, LENGTH, length) if length else b""
