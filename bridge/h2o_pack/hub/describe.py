"""Describes a model on the Hugging Face hub without downloading its weights."""

from __future__ import annotations

from pathlib import Path

from huggingface_hub import try_to_load_from_cache

from h2o_pack.architectures.model import Model, ModelFile
from h2o_pack.errors import Problems, shown
from h2o_pack.files.paths import why_unsafe
from h2o_pack.hub import metadata as metadata_cache
from h2o_pack.hub.client import COMMIT, Listed, Repository
from h2o_pack.hub.download import snapshot
from h2o_pack.hub.errors import UnreachableError
from h2o_pack.models import files, index
from h2o_pack.models.config import describe
from h2o_pack.models.inspection import Contents, inspect
from h2o_pack.models.json_file import CONFIG_BYTES, INDEX_BYTES, parse_object
from h2o_pack.models.local import from_folder
from h2o_pack.models.safetensors import LENGTH, header_length, parse_header


def from_hub(hub_id: str, revision: str = "", *, assume_full_attention: bool = False) -> Model:
    """Describe a model of the hub, pinned to a commit.

    What was fetched once is kept; then one small request tells whether the branch has
    moved, and none if `revision` is a commit. Where the hub cannot be asked, what is kept
    or what huggingface_hub has downloaded serves.

    Raises:
        UserError: the hub refuses or cannot be asked, or all that is wrong with the model.

    """
    asked = revision or "main"
    try:
        commit = asked if COMMIT.fullmatch(asked) else Repository(hub_id, asked).commit()
        contents = metadata_cache.load(hub_id, commit)
        if contents is None:
            contents = fetch(hub_id, commit, assume_full_attention=assume_full_attention)
            metadata_cache.store(contents)
    except UnreachableError:
        known = from_caches(hub_id, asked, assume_full_attention=assume_full_attention)
        if known is None:
            raise
        return known
    if commit != asked:
        metadata_cache.remember(hub_id, asked, commit)
    return described(contents, assume_full_attention=assume_full_attention)


def described(contents: Contents, *, assume_full_attention: bool) -> Model:
    """Describe a model by its contents, in its folder if it has been downloaded."""
    return inspect(
        contents,
        f"{contents.id}@{contents.commit[:12]}",
        folder=downloaded(contents),
        assume_full_attention=assume_full_attention,
    )


def from_caches(hub_id: str, revision: str, *, assume_full_attention: bool) -> Model | None:
    """Describe a model without the hub; None if nothing of it is kept."""
    commit = revision if COMMIT.fullmatch(revision) else ""
    for each in (commit, metadata_cache.last_commit(hub_id, revision)):
        contents = metadata_cache.load(hub_id, each) if each else None
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
    if index.NAME in listed:
        with problems.caught():
            data = small(repository, listed[index.NAME], INDEX_BYTES, problems)
            document = parse_object(data, index.NAME, problems.where, INDEX_BYTES)
            mapping = index.weight_map(document, problems)
            names = {name for name in listed if files.holds_weights(name)}
            index.check_files(mapping, dict.fromkeys(names), problems)
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


def downloaded(contents: Contents) -> Path | None:
    """Return the snapshot in the hub's cache if it has all files in full length."""
    folder = snapshot(contents)
    try:
        whole = all((folder / e.path).stat().st_size == e.size for e in contents.files)
    except OSError:
        return None
    return folder if whole else None
