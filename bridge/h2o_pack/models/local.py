"""Describes a model whose files lie in a folder of this machine."""

from __future__ import annotations

from pathlib import Path

from h2o_pack.architectures.model import Model, ModelFile
from h2o_pack.errors import Problems, shown
from h2o_pack.files.paths import why_bad_link, why_unsafe
from h2o_pack.models import files, index
from h2o_pack.models.config import describe
from h2o_pack.models.inspection import Contents, inspect
from h2o_pack.models.json_file import INDEX_BYTES, read_object
from h2o_pack.models.safetensors import read_tensors


def from_folder(
    model_id: str, folder: Path, *, commit: str = "", assume_full_attention: bool = False
) -> Model:
    """Describe a model folder; UserError tells all that is wrong with it.

    Args:
        model_id: what the model is called.
        folder: has config.json, the weights and the tokenizer.
        commit: of the hub that the folder is a snapshot of.
        assume_full_attention: take an unknown architecture for a plain one.

    """
    problems = Problems(str(folder))
    listed = list_files(folder, problems)
    files.check_complete({each.path for each in listed}, problems)
    config = {}
    with problems.caught():
        config = read_object(folder / files.CONFIG)
    mapping = None
    if any(each.path == index.NAME for each in listed):
        with problems.caught():
            mapping = index.weight_map(read_object(folder / index.NAME, INDEX_BYTES), problems)
    tensors = {}
    for each in listed:
        if files.holds_weights(each.path):
            with problems.caught():
                tensors[each.path] = read_tensors(folder / each.path)
    if problems.found and config:
        with problems.caught():
            describe(
                config,
                str(folder / files.CONFIG),
                assume_full_attention=assume_full_attention,
            )
    if problems.found and mapping is not None:
        names = {each.path for each in listed if files.holds_weights(each.path)}
        index.check_files(mapping, dict.fromkeys(names), problems)
    problems.refuse()
    contents = Contents(model_id, commit, config, mapping, tensors, listed)
    return inspect(
        contents, str(folder), folder=folder, assume_full_attention=assume_full_attention
    )


def list_files(folder: Path, problems: Problems) -> tuple[ModelFile, ...]:
    """List what goes into packages; links to elsewhere and odd names are noted."""
    found = []
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        problems.fail(f"the folder cannot be read: {error.strerror}")
    for path in entries:
        if not files.belongs(path.name):
            continue
        reason = why_unsafe(path.name)
        if reason is not None:
            problems.add(f"the file name {shown(path.name)} {reason}", "Rename the file.")
            continue
        reason = why_bad_link(path, folder) if path.is_symlink() else None
        if reason is not None:
            problems.add(
                f"{path.name} {reason}", "Copy the file into the folder, or use a hard link."
            )
        elif path.is_file():
            found.append(ModelFile(path.name, path.stat().st_size))
    return tuple(found)
