"""What a package was asked for, kept in its lock, so that `update` can ask for it again."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec

from h2o_pack import __version__
from h2o_pack.errors import ExitCode, UserError
from h2o_pack.files import lock
from h2o_pack.naming import readable
from h2o_pack.package.request import ModelRequest, PackageRequest
from h2o_pack.plan.options import CacheOptions
from h2o_py.budgets import FORMAT
from h2o_py.config import POLICIES
from h2o_py.policy_fields import FIELDS

ADDRESS = "file://"
"""With this begin paths that are no UTF-8, which JSON can have only as addresses."""


@dataclass(frozen=True, kw_only=True)
class KeptOptions:
    """The options of a package as its lock keeps them: fields of `PackageRequest`.

    Files are kept with their whole path, and the system prompt as it was read. Not kept are
    budgets, which the lock has apart, and what holds for one run alone.
    """

    model: str
    cache: CacheOptions
    revision: str = ""
    assume_full_attention: bool = False
    name: str | None = None
    asset_pack: bool = False
    download: str = ""
    upstream_version: str = ""
    system: str = ""
    adapter: Path | None = None
    bundle_id: str = ""
    others: tuple[ModelRequest, ...] = ()


def kept_options(request: PackageRequest) -> dict[str, Any]:
    """Return a request as the lock keeps it."""
    from h2o_pack.prepared.checks import read_system

    same = {each.name: getattr(request, each.name) for each in fields(KeptOptions)}
    options = KeptOptions(
        **same
        | {
            "model": kept_model(request.model),
            "name": None if request.name is None else readable(request.name),
            "cache": replace(request.cache, budgets=None),
            "system": read_system(request.system),
            "others": tuple(
                replace(each, model=kept_model(each.model)) for each in request.others
            ),
        }
    )
    kept: dict[str, Any] = msgspec.to_builtins(options, enc_hook=kept_path)
    return kept


@contextmanager
def replayed(package: Path, record: lock.Lock) -> Iterator[PackageRequest]:
    """Yield the request that a package was made by, for the same folder.

    Raises:
        UserError: a newer h2o-pack made the package, or one that kept no options, or others
            than this one knows.

    """
    refuse_newer(package, record)
    if not record.options:
        raise not_replayed(package, "does not say with which options the package was made")
    try:
        options = options_of(record.options)
    except ValueError as error:
        raise not_replayed(package, f"has options that cannot be read: {error}") from error
    with TemporaryDirectory(prefix="h2o-pack-") as folder:
        budgets, system = Path(folder, "budgets.json"), Path(folder, "system.txt")
        cache = options.cache
        if record.budgets is not None:
            document: dict[str, Any] = {"format": FORMAT, "layers": record.budgets}
            if record.recall_layers is not None:
                document["recall"] = record.recall_layers
            budgets.write_text(json.dumps(document), "utf-8")
            cache = replace(cache, budgets=budgets)
        if options.system:
            system.write_text(options.system, "utf-8")
        same = {each.name: getattr(options, each.name) for each in fields(options)}
        yield PackageRequest(
            **same
            | {
                "model": found_model(options.model),
                "cache": cache,
                "system": system if options.system else None,
                "output": package,
                "others": tuple(
                    replace(each, model=found_model(each.model)) for each in options.others
                ),
            }
        )


def not_replayed(package: Path, what: str) -> UserError:
    """Make the error for a lock that does not say how to make the package again."""
    return UserError(
        f"the lock {what}",
        where=str(package / lock.NAME),
        remedy="Run its `h2o-pack ios` command once more; App and files of yours stay.",
        code=ExitCode.VERSION,
    )


def options_of(kept: Mapping[str, Any]) -> KeptOptions:
    """Return the options that a lock keeps.

    Raises:
        ValueError: they are not such options, or there are some that this version lacks.

    """
    options = msgspec.convert(kept, KeptOptions, dec_hook=found_path)
    pairs: list[tuple[Any, KeptOptions | ModelRequest | CacheOptions]]
    pairs = [(kept, options), (kept["cache"], options.cache)]
    for given, other in zip(kept.get("others", ()), options.others, strict=True):
        pairs += [(given, other), (given["cache"], other.cache)]
    caches = [options.cache, *(each.cache for each in options.others)]
    found = [given.keys() - {each.name for each in fields(made)} for given, made in pairs]
    found += [each.settings.keys() - {field.name for field in FIELDS} for each in caches]
    found += [{each.policy} - POLICIES.keys() for each in caches]
    for unknown in filter(None, found):
        raise ValueError(f"unknown option {min(unknown)!r}")
    others = tuple(replace(each, cache=with_tuples(each.cache)) for each in options.others)
    return replace(options, cache=with_tuples(options.cache), others=others)


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


def kept_model(model: str) -> str:
    """Return a model as asked for as the lock keeps it: a folder by its whole path."""
    from h2o_pack.hub.resolve import local_folder

    folder = local_folder(model)
    return model if folder is None else kept_path(folder)


def found_model(kept: str) -> str:
    """Return what `kept_model` was given, a folder by its whole path."""
    return str(found_path(Path, kept)) if kept.startswith(ADDRESS) else kept


def kept_path(path: Path) -> str:
    """Return a path as text that holds wherever the command runs."""
    whole = path.resolve()
    try:
        os.fsencode(whole).decode("utf-8")
    except UnicodeDecodeError:
        return whole.as_uri()
    return str(whole)


def found_path(_kind: type, kept: object) -> Path:
    """Return the path that `kept_path` wrote."""
    if not isinstance(kept, str):
        raise ValueError(f"expected a path, got {kept!r}")  # noqa: TRY004 - msgspec's own
    if kept.startswith(ADDRESS):
        return Path(os.fsdecode(unquote_to_bytes(kept.removeprefix(ADDRESS))))
    return Path(kept)


def with_tuples(cache: CacheOptions) -> CacheOptions:
    """Return a cache's options with its settings as the command line gives them."""
    settings = {name: as_tuples(value) for name, value in cache.settings.items()}
    return replace(cache, settings=settings)


def as_tuples(value: Any) -> Any:
    """Return a setting as the command line gives it: ranges are tuples."""
    return tuple(map(as_tuples, value)) if isinstance(value, list) else value
