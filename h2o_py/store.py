"""Saves and loads the caches of a conversation, and deletes its archives."""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from errno import ENOTEMPTY
from pathlib import Path
from typing import Any

import mlx.core as mx
import msgspec

from h2o_py.cache import H2OKVCache, MixedH2OKVCache, QuantizedH2OKVCache
from h2o_py.errors import H2OError, H2OFileError, of_archive
from h2o_py.files import check_regular, replacing

_KIND = "h2o-pack cache"
_VERSION = "2"
_CLASSES = {cls.FORMAT: cls for cls in (H2OKVCache, QuantizedH2OKVCache, MixedH2OKVCache)}


def save_cache(
    path: str | Path, caches: Sequence[H2OKVCache], metadata: Mapping[str, str] | None = None
) -> None:
    """Write H2O caches to a safetensors file that only its owner can read.

    Array j of layer i is named "i.j", in the order of `H2OKVCache.arrays`. An earlier file
    stays as it is until the new one is complete and on the medium.

    Args:
        path: the file; its name ends in .safetensors.
        caches: one per layer, none empty.
        metadata: your own strings, returned by `load_cache`.

    Raises:
        H2OFileError: a cache is empty or not an `H2OKVCache`.
        OSError: the file cannot be written.

    """
    arrays: dict[str, mx.array] = {}
    for i, cache in enumerate(caches):
        if not isinstance(cache, H2OKVCache) or cache.empty():
            kind = "empty" if isinstance(cache, H2OKVCache) else type(cache).__name__
            raise H2OFileError("not_an_h2o_cache", index=i, found=kind)
        arrays.update({f"{i}.{j}": array for j, array in enumerate(cache.arrays)})
    header = {
        "kind": _KIND,
        "version": _VERSION,
        "layers": json.dumps([cache.header for cache in caches]),
        "metadata": json.dumps(dict(metadata or {})),
    }
    name = str(path) if str(path).endswith(".safetensors") else f"{path}.safetensors"
    mx.eval(arrays)  # may fail before there is a file
    with replacing(Path(name)) as file:
        mx.save_safetensors(file, arrays, header)


def load_cache(
    path: str | Path, store: str | Path | None = None
) -> tuple[list[H2OKVCache], dict[str, str]]:
    """Load the caches that `save_cache` wrote, and their metadata.

    Args:
        path: the file.
        store: the folder of the archive, that is, `store` of the caches' `H2ORecall`; needed
            for an archive in files. The file itself names no folder.

    Raises:
        H2OFileError: the file cannot be read, is damaged, or has another kind or version; or
            its archive is in files, and `store` is missing or is not the archive's folder.
        H2OStateError: a cache in it is damaged.

    """
    arrays, header = _read(str(path))
    kind, version = header.get("kind"), header.get("version")
    if kind != _KIND:
        raise H2OFileError("not_a_cache_file", where=str(path), kind=kind)
    if version != _VERSION:
        raise H2OFileError(
            "other_cache_version", where=str(path), found=version, version=_VERSION
        )
    folder = None if store is None else str(store)
    caches = []
    for i, described in enumerate(_part(str(path), header, "layers", list[str])):
        form = described.partition("\n")[0]
        if form not in _CLASSES:
            names = ", ".join(_CLASSES)
            raise H2OFileError("unknown_cache_class", where=str(path), found=form, known=names)
        state = list(_state(arrays, i))
        try:
            cache: H2OKVCache = _CLASSES[form].restored(state, described, folder)
        except H2OError as error:
            raise error.at(f"{path}, cache {i}") from error
        except RuntimeError as error:  # MLX reads the file only when an array is used
            raise _unreadable(str(path), error) from error
        caches.append(cache)
    return caches, _part(str(path), header, "metadata", dict[str, str])


def delete_archive(folder: str | Path) -> None:
    """Delete a conversation's archive in files, in the folder `store` of its `H2ORecall`.

    This deletes the files of the archive, and folders that are then empty. A missing archive is
    not an error.

    Raises:
        H2OFileError: a cache has the archive of a layer open, so nothing is deleted; or the
            operating system reports an error.

    """
    with _system_errors():
        _delete_layers(Path(folder), _layers_of(Path(folder)))


def delete_stale_archives(root: str | Path, keep: Iterable[str] = ()) -> list[str]:
    """Delete archives that conversations have left behind, for example after a crash.

    Args:
        root: the folder that holds a folder for each conversation.
        keep: names of the folders in `root` that stay, because a saved cache needs them.

    Returns:
        The names of the deleted folders. Folders without an archive stay, and so do folders
        that a cache of any process has open.

    Raises:
        H2OFileError: the operating system reports an error.

    """
    deleted, kept = [], set(keep)
    with _system_errors():
        for folder in _entries(Path(root)):
            if folder.name in kept or not _is_own_folder(folder):
                continue
            layers = _layers_of(folder)
            # It may be open, or another process may delete it.
            with suppress(BlockingIOError, FileNotFoundError):
                _delete_layers(folder, layers)
                deleted += [folder.name] if layers else []
    return deleted


_LAYER = re.compile(r"layer-[0-9]{3,9}")
_LOCK = "lock"
_FILE_OF_ARCHIVE = re.compile(r"(manifest|[0-9]{6,12}\.safetensors)(\.new)?")


@contextmanager
def _system_errors() -> Iterator[None]:
    """Raise H2OFileError for what the operating system refuses."""
    try:
        yield
    except BlockingIOError as error:
        raise H2OFileError("archive_locked", path=str(Path(error.filename).parent)) from error
    except OSError as error:
        values = of_archive(str(error.filename), error.errno or 0)
        raise H2OFileError("archive_unusable", **values) from error


def _entries(folder: Path) -> list[Path]:
    """Return what is in a folder, in the order of the names; nothing if there is none."""
    with suppress(FileNotFoundError, NotADirectoryError):
        return sorted(folder.iterdir())
    return []


def _is_own_folder(path: Path) -> bool:
    """Whether a path is a folder of this user. A link is not, whatever it points to."""
    with suppress(FileNotFoundError):  # another process may delete it too
        status = path.lstat()
        return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
    return False


def _layers_of(folder: Path) -> list[Path]:
    """Return the folders of the archives of layers.

    Each has an empty file as its lock, until that is the last of its files to be deleted.
    """

    def is_archive(layer: Path) -> bool:
        with suppress(FileNotFoundError):
            status = (layer / _LOCK).lstat()
            return stat.S_ISREG(status.st_mode) and status.st_size == 0
        return not _entries(layer)

    layers = [path for path in _entries(folder) if _LAYER.fullmatch(path.name)]
    return [layer for layer in layers if _is_own_folder(layer) and is_archive(layer)]


def _delete_layers(folder: Path, layers: Sequence[Path]) -> None:
    """Delete the files of archives, and folders that are then empty.

    Raises BlockingIOError if a cache has one of them open, before anything is deleted.
    """
    with ExitStack() as locks:
        for layer in layers:
            locks.callback(os.close, _locked(layer / _LOCK))
        for layer in layers:
            for path in _entries(layer):
                if _FILE_OF_ARCHIVE.fullmatch(path.name):
                    path.unlink(missing_ok=True)
            (layer / _LOCK).unlink(missing_ok=True)
            _remove_if_empty(layer)
    if layers:
        _remove_if_empty(folder)


def _locked(path: Path) -> int:
    """Open and lock a file; BlockingIOError if somebody else has the lock."""
    while True:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(path, flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(FileNotFoundError):  # who had the lock may have deleted the file
                if os.path.samestat(os.fstat(descriptor), path.lstat()):
                    return descriptor
        except OSError as error:
            os.close(descriptor)
            error.filename = str(path)
            raise
        os.close(descriptor)


def _remove_if_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except FileNotFoundError:
        pass
    except OSError as error:
        if error.errno != ENOTEMPTY:
            raise


def _read(path: str) -> tuple[dict[str, mx.array], dict[str, str]]:
    try:
        check_regular(path)
        content: Any = mx.load(path, format="safetensors", return_metadata=True)
    except (OSError, RuntimeError, ValueError) as error:
        raise _unreadable(path, error) from error
    arrays, header = content
    return arrays, header


def _unreadable(path: str, error: Exception) -> H2OFileError:
    reason = getattr(error, "strerror", None) or str(error)
    return H2OFileError("unreadable_cache_file", where=path, reason=reason)


def _part(path: str, header: Mapping[str, str], name: str, kind: Any) -> Any:
    """Return a part of the header, which is JSON of this type."""
    try:
        return msgspec.convert(json.loads(header.get(name, "")), kind)
    except (ValueError, RecursionError) as error:
        raise H2OFileError("damaged_cache_file", where=path, part=name) from error


def _state(arrays: Mapping[str, mx.array], i: int) -> Iterator[mx.array]:
    """Yield the arrays of layer i, named "i.0", "i.1" and so on."""
    j = 0
    while f"{i}.{j}" in arrays:
        yield arrays[f"{i}.{j}"]
        j += 1
