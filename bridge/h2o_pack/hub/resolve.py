"""Finds a model by short name, folder, id or address, and describes it without its weights.

The hub's metadata of a model is downloaded once, then stored.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit

import msgspec

from h2o_pack.errors import Problems, UserError, model_error, shown, unreadable, usage_error
from h2o_pack.facts import KnownModel, best_first
from h2o_pack.files.paths import CONFIG, GIT_ID, SHA256, metadata_folder, why_unsafe
from h2o_pack.files.text import CONFIG_BYTES, INDEX_BYTES, parse_object
from h2o_pack.model import Contents, Model, ModelFile
from h2o_pack.models import files
from h2o_pack.models.catalogue import as_model, catalogue, find, unknown
from h2o_pack.models.config import describe
from h2o_pack.models.files import (
    INDEX,
    LENGTH,
    check_files,
    from_folder,
    header_length,
    inspect,
    local_file,
    parse_header,
    weight_map,
)
from h2o_pack.naming import readable
from h2o_pack.progress import ProgressReporter, silent
from h2o_pack.spec import ModelSpec
from h2o_py.files import read_file

if TYPE_CHECKING:
    from huggingface_hub.hf_api import RepoSibling

    from h2o_pack.hub.client import Repository

FORMAT = 6
"""The version of the stored descriptions, which another version does not read."""
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
BUNDLED = Path(__file__).parents[1] / "models"
STATED = "the hub cannot be reached: layers and sizes are the catalogue's"


def find_model(
    spec: ModelSpec,
    say: ProgressReporter = silent,
    *,
    stated: bool = False,
) -> Model:
    """Find a model and describe it, by its metadata only.

    spec: names a model by its short name in the catalogue, a folder, or an id or the address of
    a page on the hub; `@REVISION` may follow a short name or an id. stated: for a model of the
    catalogue without a revision, use what this machine has stored or what the catalogue states,
    and do not ask the hub. Raises UserError: the model is unknown, unreadable or unsupported;
    several errors together.
    """
    say(f"reading the headers of {spec.model}")
    revision = spec.revision
    name = model_of_address(spec.model or "")
    base, at, inside = name.partition("@")
    entry = find(base)
    is_short = entry is not None and base.lower() == entry.name.lower()
    folder = spec.folder if name == spec.model and (at or not is_short) else None
    if folder is not None:
        if revision:
            raise usage_error(
                f"{name!r} is a local folder, which has no revisions",
                "Leave out --revision, or give an id on the hub.",
            )
        # A name that is not UTF-8 cannot be written to the terminal or to the lock.
        return from_folder(readable(folder.name), folder)
    if at and revision not in ("", inside):
        raise usage_error(
            f"--model names revision {inside!r} and --revision names {revision!r}",
            "Give only one of them.",
        )
    if entry is not None and not entry.hub:
        folder = BUNDLED / entry.bundled if entry.bundled else Path(entry.folder)
        return from_folder(entry.name, folder)
    if entry is None:
        refuse_file(name)
    if entry is None and base.startswith((".", "/", "~")):
        raise model_error(
            f"{name!r} is not a folder",
            "Give the folder that contains config.json and the weights.",
        )
    hub_id = base if entry is None else entry.hub
    if not HUB_ID.fullmatch(hub_id) or ".." in hub_id or "--" in hub_id:
        raise unknown(base)
    branch = inside if at else revision or (entry and entry.revision) or "main"
    place = None
    if entry is not None and stated and not (at or revision):
        place = kept_contents(hub_id, branch)
        model = as_model(entry) if place is None else None
        if model is not None:
            return model
    place = place or hub_contents(hub_id, branch)
    if isinstance(place, Path):
        return from_folder(hub_id, place, commit=place.name)
    from h2o_pack.hub.download import downloaded

    problems = Problems(f"{place.id}@{place.commit[:12]}")
    folder = downloaded(place)
    return inspect(place, problems, folder=folder)


def describe_model(spec: ModelSpec, say: ProgressReporter) -> tuple[Model, KnownModel | None]:
    """Find a model as `find_model` does; return it, and its row of the catalogue.

    If the hub cannot be reached, the model is the one that the catalogue states.
    """
    known = find(model_of_address(spec.model or "").partition("@")[0])
    try:
        model = find_model(spec, say)
    except UserError as error:
        from h2o_pack.hub.client import UnreachableError

        if known is None or not isinstance(error, UnreachableError):
            raise
        model = find_model(spec, stated=True)
        model = replace(model, remarks=(*model.remarks, STATED))
    is_known = known is not None and model.id in (known.hub, known.name)
    return model, known if is_known else None


def refuse_file(name: str) -> None:
    """Refuse the name of a file, with what to give instead."""
    path = Path(name)
    try:
        is_file = path.expanduser().is_file()
    except (OSError, RuntimeError, ValueError):
        return
    if is_file and path.suffix.lower() == ".gguf":
        raise model_error(f"{name!r} is a GGUF file, which only llama.cpp reads", files.IN_MLX)
    if is_file:
        raise model_error(
            f"{name!r} is a file, but a model is a folder",
            f"Give the folder {str(path.parent)!r}, which must contain config.json too.",
        )


HOSTS = ("huggingface.co", "www.huggingface.co", "hf.co")
WITH_REVISION = ("tree", "blob", "commit", "resolve")
OTHER_KINDS = ("datasets", "spaces", "collections", "papers")
ID_PARTS = 2


def model_of_address(name: str) -> str:
    """Return ID or ID@REVISION for the page of a model; UserError for another page."""
    text = name.strip()
    has_scheme = text.startswith(("https://", "http://"))
    if not has_scheme and not text.startswith(tuple(f"{host}/" for host in HOSTS)):
        return name
    address = urlsplit(text if has_scheme else f"https://{text}")
    parts = [unquote(part) for part in address.path.split("/") if part]
    is_model = len(parts) >= ID_PARTS and parts[0] not in OTHER_KINDS
    if address.hostname not in HOSTS or not is_model:
        raise model_error(
            f"{shown(name)} is not the address of a model on huggingface.co",
            "Give the page of a model, or its id such as mlx-community/Qwen3-4B-4bit.",
        )
    model = "/".join(parts[:ID_PARTS])
    rest = parts[ID_PARTS:]
    if len(rest) > 1 and rest[0] in WITH_REVISION:
        return f"{model}@{rest[1]}"
    return model


def listed() -> tuple[tuple[KnownModel, Model | None], ...]:
    """Return the catalogue's entries, the best first, and their models.

    The model of an entry without shapes is None.
    """
    return tuple(
        (
            entry,
            from_folder(entry.name, BUNDLED / entry.bundled)
            if entry.bundled
            else as_model(entry),
        )
        for entry in best_first(catalogue())
    )


REVISION = re.compile(r"[\w.+-]+(/[\w.+-]+)*", re.ASCII)


def hub_contents(hub_id: str, revision: str) -> Contents | Path:
    """Return the files that describe a model on the hub, at a fixed commit.

    Downloaded files are stored. Later calls ask only whether the branch has moved, with one
    small request, or ask nothing if `revision` is a commit. If the hub cannot be reached, the
    stored files are used, or the folder that huggingface_hub has downloaded. Raises UserError:
    the revision has an impossible name, the hub refuses or cannot be reached, or all errors in
    the model.
    """
    from h2o_pack.hub.client import Repository, UnreachableError

    if not REVISION.fullmatch(revision) or ".." in revision:
        raise usage_error(
            f"{revision!r} is not a revision", "Give a branch, a tag or a commit id."
        )
    try:
        is_commit = GIT_ID.fullmatch(revision)
        commit = revision if is_commit else Repository(hub_id, revision).commit()
        contents = load_contents(hub_id, commit)
        if contents is None:
            contents = fetch(hub_id, commit)
            store_contents(contents)
    except UnreachableError:
        stored = kept_contents(hub_id, revision)
        if stored is None:
            refuse_without_branch(hub_id, revision)
            raise
        return stored
    if commit != known_commit(hub_id, revision):
        write_if_possible(branch_path(hub_id, revision), commit)
    return contents


def kept_contents(hub_id: str, revision: str) -> Contents | Path | None:
    """Return the stored description of a model, or huggingface_hub's folder of it, or None."""
    from huggingface_hub import constants  # this import takes no time

    folder = Path(constants.HF_HUB_CACHE, f"models--{hub_id.replace('/', '--')}")
    if not folder.is_dir() and not metadata_folder(hub_id, constants.ENDPOINT).is_dir():
        return None
    from huggingface_hub import try_to_load_from_cache

    commit = known_commit(hub_id, revision)
    contents = load_contents(hub_id, commit) if commit else None
    if contents is not None:
        return contents
    config = try_to_load_from_cache(hub_id, CONFIG, revision=revision)
    return Path(config).parent if isinstance(config, str) else None


def refuse_without_branch(hub_id: str, revision: str) -> None:
    """Refuse a branch that the hub's cache does not know, if it has commits of the model."""
    from huggingface_hub import constants

    snapshots = Path(
        constants.HF_HUB_CACHE, f"models--{hub_id.replace('/', '--')}", "snapshots"
    )
    with suppress(OSError):
        commits = sorted(path.name for path in snapshots.iterdir() if (path / CONFIG).is_file())
        if commits:
            raise model_error(
                f"the hub cannot be reached, and its cache has {hub_id} at the commit "
                f"{', '.join(commits)}, but does not say which commit {revision!r} is",
                f"Give --model {hub_id}@{commits[-1]}.",
                where=str(snapshots),
            )


def load_contents(hub_id: str, commit: str) -> Contents | None:
    """Return the stored description of a model at a commit; None if missing or damaged."""
    try:
        first, _, body = read_file(entry_path(hub_id, commit)).partition(b"\n")
        if hashlib.sha256(body).hexdigest().encode() != first:
            return None
        contents = msgspec.convert(json.loads(body), Contents)
    except (OSError, ValueError):
        return None
    return contents if (contents.id, contents.commit) == (hub_id, commit) else None


def store_contents(contents: Contents) -> None:
    """Store the description of a model; do nothing if the cache cannot be written."""
    # With json, because a configuration may contain Infinity.
    body = json.dumps(msgspec.to_builtins(contents), separators=(",", ":"))
    digest = hashlib.sha256(body.encode()).hexdigest()
    write_if_possible(entry_path(contents.id, contents.commit), f"{digest}\n{body}")


def known_commit(hub_id: str, revision: str) -> str:
    """Return a revision that is a commit, or else the last known commit of a branch, or ""."""
    if GIT_ID.fullmatch(revision):
        return revision
    try:
        commit = read_file(branch_path(hub_id, revision)).decode("ascii")
    except (OSError, ValueError):
        return ""
    return commit if GIT_ID.fullmatch(commit) else ""


def entry_path(hub_id: str, commit: str) -> Path:
    """Return the path of the stored description of a model at a commit."""
    from huggingface_hub import constants

    return metadata_folder(hub_id, constants.ENDPOINT) / f"{commit}-{FORMAT}.json"


def branch_path(hub_id: str, revision: str) -> Path:
    """Return the path of the file with the last known commit of a branch."""
    from huggingface_hub import constants

    return metadata_folder(hub_id, constants.ENDPOINT) / "branches" / quote(revision, safe="")


def write_if_possible(path: Path, text: str) -> None:
    """Write a file completely or not at all; do nothing if it cannot be written.

    Several commands may write it at once, so each uses a temporary file of its own.
    """
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


def fetch(hub_id: str, commit: str) -> Contents:
    """Download everything that describes a model at a commit."""
    from h2o_pack.hub.client import Repository

    repository = Repository(hub_id, commit)
    problems = Problems(f"{hub_id}@{commit[:12]}")
    listing = repository.listing()
    listed = needed(listing, problems)
    files.check_complete([entry.rfilename for entry in listing], problems)
    problems.refuse()
    config = parse_object(
        small(repository, listed[CONFIG], CONFIG_BYTES, problems),
        CONFIG,
        f"{problems.where}/{CONFIG}",
    )
    with problems.caught():  # refused before headers are downloaded
        describe(config, f"{problems.where}/{CONFIG}")
    weights = [file for file in listed.values() if files.holds_weights(file.path)]
    mapping = None
    if INDEX in listed:
        with problems.caught():
            data = small(repository, listed[INDEX], INDEX_BYTES, problems)
            document = parse_object(data, INDEX, problems.where, INDEX_BYTES)
            mapping = weight_map(document, problems)
            check_files(mapping, [file.path for file in weights], problems)
    problems.refuse()
    tensors = {}
    for file in weights:
        data = header(repository, file, problems)
        with problems.caught():
            if data:
                tensors[file.path] = parse_header(data, file.size, file.path, problems.where)
    problems.refuse()
    return Contents(hub_id, commit, config, mapping, tensors, tuple(listed.values()))


def needed(listing: Iterable[RepoSibling], problems: Problems) -> dict[str, ModelFile]:
    """Return the listed files that packages need, by path; add errors for invalid entries."""
    model_files = {}
    for entry in listing:
        path, size = entry.rfilename, entry.size
        sha256 = entry.lfs.sha256 if entry.lfs else ""
        git_id = "" if entry.lfs else entry.blob_id or ""
        reason = why_unsafe(path)
        if reason is not None:
            problems.add(
                f"the hub lists a file {shown(path)}, which {reason}",
                "Choose another model; h2o-pack downloaded nothing of this model.",
            )
        elif files.belongs(path):
            if isinstance(size, bool) or not isinstance(size, int) or size < 0:
                problems.add(f"the hub lists {path} without a size")
            elif sha256 and not SHA256.fullmatch(str(sha256)):
                problems.add(f"the hub lists {path} with an invalid sha256")
            elif git_id and not GIT_ID.fullmatch(str(git_id)):
                problems.add(f"the hub lists {path} with an invalid git id")
            else:
                model_files[path] = ModelFile(path, size, sha256, git_id)
    return dict(sorted(model_files.items()))


def small(repository: Repository, file: ModelFile, most: int, problems: Problems) -> bytes:
    """Read a whole file of at most `most` bytes."""
    if file.size > most:
        problems.fail(f"{file.path} is larger than {most >> 20} MiB")
    return repository.read(file.path, 0, file.size) if file.size else b""


def header(repository: Repository, file: ModelFile, problems: Problems) -> bytes:
    """Read the header of a safetensors file in two ranges; b"" after adding its error."""
    first = repository.read(file.path, 0, LENGTH) if file.size >= LENGTH else b""
    length = 0
    with problems.caught():
        length = header_length(first, file.size, file.path, problems.where)
    return repository.read(file.path, LENGTH, length) if length else b""


def read_small(model: Model, largest: Mapping[str, int]) -> dict[str, bytes] | None:
    """Read the files that are named in `largest`, if the model has them.

    largest: the most bytes of each file, by name. Returns None if the hub cannot be reached.
    Raises UserError: a file is larger.
    """
    sizes = {file.path: file.size for file in model.files if file.path in largest}
    for name, size in sizes.items():
        if size > largest[name]:
            raise unreadable(model.id, f"{name} is larger than {largest[name] >> 20} MiB")
    if model.folder is not None:
        return {name: read_local(model.folder, name, largest[name]) for name in sizes}
    from h2o_pack.hub.client import Repository, UnreachableError

    repository = Repository(model.id, model.commit)
    try:
        return {name: repository.read(name, 0, n) if n else b"" for name, n in sizes.items()}
    except UnreachableError:
        return None


def read_local(folder: Path, name: str, most: int) -> bytes:
    """Read a model's file on this machine; UserError if that fails."""
    path = local_file(folder, name)
    try:
        return read_file(path, most)
    except OSError as error:
        raise unreadable(path, f"{name} cannot be read: {error.strerror}") from error
