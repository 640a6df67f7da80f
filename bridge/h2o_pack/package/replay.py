"""What a package was asked for, kept in its lock, so that `update` can ask for it again."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from h2o_pack import __version__
from h2o_pack.errors import ExitCode, UserError
from h2o_pack.files import lock
from h2o_pack.package.request import ModelRequest, PackageRequest
from h2o_pack.plan.options import CacheOptions
from h2o_py.budgets import FORMAT

OF_A_RUN = ("cache", "output", "upstream", "new_app")
"""Fields of a request that are no settings of the package, or kept in another form."""


def kept_options(request: PackageRequest) -> dict[str, Any]:
    """Return a request as the lock keeps it; budgets are in the lock already.

    Files are kept with their whole path, and the system prompt as it was read.
    """
    from h2o_pack.hub.resolve import local_folder
    from h2o_pack.prepared.checks import read_system

    folder = local_folder(request.model)
    own = {
        each.name: getattr(request, each.name)
        for each in fields(request)
        if each.name not in OF_A_RUN
    }
    own["model"] = str(folder or request.model)
    own["system"] = read_system(request.system)
    own = {name: readable(value) for name, value in own.items()}
    own["cache"] = replace(request.cache, budgets=None)
    own["others"] = [
        replace(each, model=readable(str(local_folder(each.model) or each.model)))
        for each in request.others
    ]
    kept: dict[str, Any] = msgspec.to_builtins(own, enc_hook=whole_path)
    return kept


@contextmanager
def replayed(package: Path, record: lock.Lock) -> Iterator[PackageRequest]:
    """Yield the request that a package was made by, for the same folder.

    Raises:
        UserError: a newer h2o-pack made the package, or one that kept no options.

    """
    refuse_newer(package, record)
    kept = dict(record.options)
    if not kept:
        raise UserError(
            "the lock does not say with which options the package was made",
            where=str(package / lock.NAME),
            remedy="Run its `h2o-pack ios` command once more; App and files of yours stay.",
            code=ExitCode.VERSION,
        )
    with TemporaryDirectory(prefix="h2o-pack-") as folder:
        budgets, system = Path(folder, "budgets.json"), Path(folder, "system.txt")
        cache = cache_of(kept.pop("cache"))
        others = tuple(
            ModelRequest(each["model"], cache_of(each["cache"]))
            for each in kept.pop("others", ())
        )
        if record.budgets is not None:
            document: dict[str, Any] = {"format": FORMAT, "layers": record.budgets}
            if record.recall_layers is not None:
                document["recall"] = record.recall_layers
            budgets.write_text(json.dumps(document), "utf-8")
            cache = replace(cache, budgets=budgets)
        text = kept.pop("system")
        if text:
            system.write_text(text, "utf-8")
        adapter = kept.pop("adapter", None)
        yield PackageRequest(
            **kept,
            cache=cache,
            system=system if text else None,
            adapter=None if adapter is None else Path(adapter),
            output=package,
            others=others,
        )


def cache_of(kept: Any) -> CacheOptions:
    """Return the options of a cache that the lock keeps."""
    cache = msgspec.convert(kept, CacheOptions, dec_hook=made_of_text)
    settings = {name: as_tuples(value) for name, value in cache.settings.items()}
    return replace(cache, settings=settings)


def refuse_newer(package: Path, record: lock.Lock) -> None:
    """Refuse to make a package anew with an older h2o-pack than the one that made it."""
    if numbers(record.h2o_pack) <= numbers(__version__):
        return
    raise UserError(
        f"h2o-pack {record.h2o_pack} made the package, and this is {__version__}",
        where=str(package / lock.NAME),
        remedy=f"Install h2o-pack {record.h2o_pack} or newer.",
        code=ExitCode.VERSION,
    )


def numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, to compare it with another."""
    return tuple(map(int, re.findall(r"\d+", version)))


def whole_path(path: Path) -> str:
    """Return a path as text that holds wherever the command runs."""
    return str(readable(str(path.resolve())))


def readable(value: Any) -> Any:
    """Return text as JSON can have it: `update` does not find a name that is not UTF-8."""
    if not isinstance(value, str):
        return value
    return os.fsencode(value).decode("utf-8", "replace")


def made_of_text(kind: type, value: object) -> object:
    """Make a path of its text."""
    return kind(value)


def as_tuples(value: Any) -> Any:
    """Return a setting as the command line gives it: ranges are tuples."""
    return tuple(map(as_tuples, value)) if isinstance(value, list) else value
