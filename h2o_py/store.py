"""Saves caches to a file, so that a conversation can continue in another process."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx

from h2o_py.cache import H2OKVCache
from h2o_py.errors import H2OFileError
from h2o_py.mixed_cache import MixedH2OKVCache
from h2o_py.quantized_cache import QuantizedH2OKVCache

_KIND = "h2o-pack cache"
_VERSION = "1"
_CLASSES = {cls.FORMAT: cls for cls in (H2OKVCache, QuantizedH2OKVCache, MixedH2OKVCache)}


def save_cache(
    path: str | Path, caches: Sequence[H2OKVCache], metadata: Mapping[str, str] | None = None
) -> None:
    """Write H2O caches to a safetensors file.

    Array j of layer i is named "i.j", in the order of `H2OKVCache.arrays`.

    Args:
        path: file to write; its name ends in .safetensors.
        caches: one per layer, none empty.
        metadata: your own strings, returned by `load_cache`.

    Raises:
        H2OFileError: a cache is empty or not an `H2OKVCache`.

    """
    arrays: dict[str, mx.array] = {}
    for i, cache in enumerate(caches):
        if not isinstance(cache, H2OKVCache) or cache.empty():
            found = "empty" if isinstance(cache, H2OKVCache) else type(cache).__name__
            raise H2OFileError("not_an_h2o_cache", index=i, found=found)
        arrays.update({f"{i}.{j}": array for j, array in enumerate(cache.arrays)})
    header = {
        "kind": _KIND,
        "version": _VERSION,
        "layers": json.dumps([list(cache.header) for cache in caches]),
        "metadata": json.dumps(dict(metadata or {})),
    }
    mx.save_safetensors(str(path), arrays, header)


def load_cache(path: str | Path) -> tuple[list[H2OKVCache], dict[str, str]]:
    """Load the caches that `save_cache` wrote, and their metadata.

    Raises:
        H2OFileError: the file is of another kind or version.

    """
    loaded: Any = mx.load(str(path), return_metadata=True)
    arrays, header = loaded
    if header.get("kind") != _KIND:
        found = header.get("kind")
        raise H2OFileError("not_a_cache_file", where=str(path), kind=found)
    if header.get("version") != _VERSION:
        found = header.get("version")
        raise H2OFileError(
            "other_cache_version", where=str(path), found=found, version=_VERSION
        )
    caches = []
    for i, described in enumerate(json.loads(header["layers"])):
        count = sum(name.startswith(f"{i}.") for name in arrays)
        state = [arrays[f"{i}.{j}"] for j in range(count)]
        if described[0] not in _CLASSES:
            known = ", ".join(_CLASSES)
            raise H2OFileError(
                "unknown_cache_class", where=str(path), found=described[0], known=known
            )
        cache: H2OKVCache = _CLASSES[described[0]].restored(state, described)
        caches.append(cache)
    return caches, json.loads(header["metadata"])
