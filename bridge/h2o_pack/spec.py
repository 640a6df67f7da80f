"""The options of a package: one value from the command line to the lock.

The command line, a table of h2o-pack.toml and the lock of a package are three forms of a
`PackageSpec`. Its open settings are None; `choice` fills them, and the plan of a package
contains the whole spec.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote_to_bytes, urlsplit

from h2o_pack.config_errors import OF_RECALL
from h2o_pack.errors import UserError, usage_error, version_error
from h2o_pack.naming import readable
from h2o_py.budgets import Budgets
from h2o_py.config import POLICIES
from h2o_py.policy_fields import FIELDS
from h2o_py.prompts import PROMPT_CHUNK

Archive = Literal["memory", "files"]
PREFILL_STEP = PROMPT_CHUNK
LONG_CONVERSATION = 8192
"""Tokens of the longest conversation, if h2o-pack chooses the cache without --context."""
ADDRESS = "file://"
"""JSON contains a path that is not UTF-8 as an address, which begins with this."""


@dataclass(frozen=True)
class CacheSpec:
    """A model's cache; kv, recall and archive are None while they are open.

    max_kv: rows per KV head and layer; None for a cache that keeps every token, or for one
    that is still to be chosen. kv: storage of the rows. recall: whether later tokens read
    evicted tokens from an archive. policy: a name of `NAMED_POLICIES`. settings: fields of
    H2OConfig that differ from the policy's defaults. budgets: of each layer; None if all are
    equal.
    context: tokens of the longest conversation for which memory is planned. prefill_step:
    tokens of a prompt that the model reads at once. archive: the place of recall's archive.
    recall_ask, recall_reach, archive_bits and archive_limit (bytes of a layer's archive): other
    settings of recall.
    """

    max_kv: int | None = None
    kv: str | None = None
    recall: bool | None = None
    policy: str = "standard"
    settings: Mapping[str, Any] = field(default_factory=dict)
    budgets: Budgets | None = None
    context: int | None = None
    prefill_step: int = PREFILL_STEP
    recall_ask: int | None = None
    recall_reach: int | None = None
    archive_bits: int | None = None
    archive_limit: int | None = None
    archive: Archive | None = None

    @property
    def archive_in_files(self) -> bool:
        """Whether the archive of recall is in files."""
        return bool(self.recall) and self.archive == "files"

    @property
    def storage(self) -> str:
        """The name of the rows' storage: 16 bits while it is open."""
        return self.kv or "16"

    def filled(self) -> CacheSpec:
        """Return the cache with defaults for its open settings.

        A cache with a bound recalls, with its archive in files, so that no app forgets unless
        its developer asked for it.
        """
        is_bounded = self.max_kv is not None
        recall = is_bounded if self.recall is None else self.recall
        archive = self.archive or ("files" if recall and is_bounded else None)
        return replace(self, kv=self.storage, recall=recall, archive=archive)

    @property
    def recall_settings(self) -> dict[str, Any]:
        """The given settings of recall, by the names of their options."""
        values = {name: getattr(self, name) for name in OF_RECALL}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True)
class ModelSpec:
    """A model and its cache.

    model: short name, folder, or id or address on the hub; None while it is open. adapter: the
    folder of a LoRA adapter.
    """

    model: str | None = None
    cache: CacheSpec = field(default_factory=CacheSpec)
    revision: str = ""
    adapter: Path | None = None

    @property
    def folder(self) -> Path | None:
        """The absolute path of the folder that `model` names; None if it names no folder."""
        return None if self.model is None else local_folder(self.model)

    def filled(self) -> ModelSpec:
        """Return the spec with defaults for its open settings."""
        return replace(self, cache=self.cache.filled())


@dataclass(frozen=True)
class DeliverySpec:
    """How the models reach a device; without options, they are in the app.

    asset_pack: Apple hosts them. download: the address from which the app downloads them,
    without a last `/`. Raises UserError: both are given, or the address is not allowed.
    """

    asset_pack: bool = False
    download: str = ""

    def __post_init__(self) -> None:
        """Check that at most one delivery is given, and check the address of --download."""
        if self.download and self.asset_pack:
            raise usage_error(
                "--asset-pack and --download cannot be given together",
                "Give only one of them: each brings the model to the device.",
            )
        if self.download:
            object.__setattr__(self, "download", check_server(self.download))

    @property
    def apart(self) -> bool:
        """Whether devices download the models separately from the app."""
        return self.asset_pack or bool(self.download)


LOOPBACK = ("127.0.0.1", "::1", "localhost")
PLAIN = re.compile(r"[A-Za-z0-9._~:/%\[\]@!$&'()*+,;=-]+")
"""The characters of a URL without a query and a fragment."""
ADDRESS_REMEDY = "Give the folder's address, such as https://models.example.com/chat/1."


def check_server(url: str) -> str:
    """Return the address of the folder with the model's files, without a last `/`.

    Raises UserError: it is not https, has a user, a password, a query or a fragment, or is not
    an address. http is allowed only on this machine, for tests.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise refused_address("is not an address") from error
    if "@" in parts.netloc:
        raise refused_address("contains a user or a password, which every app would contain")
    if parts.scheme != "https" and not (parts.scheme == "http" and host in LOOPBACK):
        raise refused_address("does not begin with https://, which iOS requires")
    if not host or not PLAIN.fullmatch(url):
        raise refused_address(
            "must be the plain address of a folder, without a query or a fragment"
        )
    return url.rstrip("/")


def refused_address(what: str) -> UserError:
    """Make the error for an address; it omits the address, which may contain secrets."""
    return usage_error(f"--download {what}", ADDRESS_REMEDY)


@dataclass(frozen=True)
class AppSpec:
    """The package and its app.

    name: None for the model's name. bundle_id: "" for an automatic identifier. system: the text
    of the system prompt whose caches are computed, "" for none.
    """

    name: str | None = None
    bundle_id: str = ""
    system: str = ""


@dataclass(frozen=True)
class DevicesSpec:
    """Names of the devices on which the package must fit, and the user's file of devices."""

    names: tuple[str, ...] = ()
    file: Path | None = None


@dataclass(frozen=True)
class PackageSpec:
    """The options of a package; models: in any order."""

    models: tuple[ModelSpec, ...] = (ModelSpec(),)
    delivery: DeliverySpec = DeliverySpec()
    app: AppSpec = AppSpec()
    devices: DevicesSpec = DevicesSpec()

    def is_open(self, model: ModelSpec) -> bool:
        """Whether one of its models, or the cache of this model for devices, is to be chosen.

        Without devices, a cache without a number of rows keeps every token.
        """
        return model.model is None or (model.cache.max_kv is None and bool(self.devices.names))

    def of(self, model: ModelSpec) -> PackageSpec:
        """Return the spec with only this model."""
        return replace(self, models=(model,))


ONE_MODEL = {
    "--revision": "Write ID@REVISION as --model.",
    "--adapter": "Merge the adapter into a model with mlx_lm.fuse.",
    "--budgets": "Leave out --budgets: all layers then have --max-kv rows.",
    "--asset-pack": "Make a package for each model, or leave out --asset-pack.",
    "--download": "Make a package for each model, or leave out --download.",
    "--measured": "Give only the model that the device measured.",
}
"""Options that are only for packages with one model, and the remedy with several models."""


def refuse_with_several(spec: PackageSpec, *, measured: bool = False) -> None:
    """Raise UserError for options that need a single model, if several models are given."""
    if len(spec.models) <= 1:
        return
    by_flag = {
        "--revision": any(model.revision for model in spec.models),
        "--adapter": any(model.adapter for model in spec.models),
        "--budgets": any(model.cache.budgets for model in spec.models),
        "--asset-pack": spec.delivery.asset_pack,
        "--download": spec.delivery.download,
        "--measured": measured,
    }
    for flag, value in by_flag.items():
        if value:
            raise usage_error(
                f"{flag} is only for a package with one model, but {len(spec.models)} are "
                "given",
                ONE_MODEL[flag],
            )


def to_document(spec: PackageSpec, source: str) -> dict[str, Any]:
    """Return a spec as JSON for a lock, whose name is `source`, with absolute paths."""
    import msgspec  # not needed for --help

    name = spec.app.name
    spec = replace(
        spec,
        models=tuple(lockable(model, source) for model in spec.models),
        app=replace(spec.app, name=None if name is None else readable(name)),
    )
    document: dict[str, Any] = msgspec.to_builtins(spec, enc_hook=path_as_text)
    return document


def lockable(spec: ModelSpec, source: str) -> ModelSpec:
    """Return a model with an absolute path, and with budgets whose source is `source`."""
    budgets = spec.cache.budgets and replace(spec.cache.budgets, source=source)
    return replace(
        spec,
        model=spec.model if spec.folder is None else path_as_text(spec.folder),
        cache=replace(spec.cache, budgets=budgets),
    )


def from_document(document: Mapping[str, Any], where: Path) -> PackageSpec:
    """Return the spec in the lock at `where`, as the command line would give it.

    Raises UserError: it is not a spec, or has a key, setting or policy that this version lacks.
    """
    import msgspec

    try:
        spec = msgspec.convert(document, PackageSpec, dec_hook=text_as_path)
        refuse_unknown(document, msgspec.to_builtins(spec, enc_hook=path_as_text), spec)
    except ValueError as error:
        raise version_error(
            f"the lock has options that this version cannot read: {error}",
            "Run the `h2o-pack ios` command of this package again. It does not "
            "change App and your own files.",
            where=str(where),
        ) from error
    models = tuple(replace(model, model=name_of(model.model)) for model in spec.models)
    return replace(spec, models=models)


def refuse_unknown(
    document: Mapping[str, Any], written: Mapping[str, Any], spec: PackageSpec
) -> None:
    """Raise ValueError for keys, settings and policies in a lock that this version lacks."""
    unknown = [*extra_keys(document, written)]
    for model in spec.models:
        unknown += model.cache.settings.keys() - {field.name for field in FIELDS}
        unknown += {model.cache.policy} - POLICIES.keys()
    if unknown:
        raise ValueError(f"unknown option {min(unknown)!r}")
    if not spec.models or any(model.model is None for model in spec.models):
        raise ValueError("a model is missing")


def extra_keys(value: Any, other: Any) -> Iterator[str]:
    """Yield the keys of a JSON value, at any depth, that another value lacks."""
    if isinstance(value, dict) and isinstance(other, dict):
        yield from value.keys() - other.keys()
        for key in value.keys() & other.keys():
            yield from extra_keys(value[key], other[key])
    if isinstance(value, (list, tuple)) and isinstance(other, (list, tuple)):
        for part, other_part in zip(value, other, strict=False):
            yield from extra_keys(part, other_part)


def path_as_text(path: Path) -> str:
    """Return an absolute path as text."""
    whole = path.resolve()
    try:
        os.fsencode(whole).decode("utf-8")
    except UnicodeDecodeError:
        return whole.as_uri()
    return str(whole)


def text_as_path(_kind: type, text: object) -> Path:
    """Return the path that `path_as_text` wrote."""
    if not isinstance(text, str):
        raise ValueError(f"expected a path, got {text!r}")  # noqa: TRY004 - msgspec expects ValueError
    if text.startswith(ADDRESS):
        return Path(os.fsdecode(unquote_to_bytes(text.removeprefix(ADDRESS))))
    return Path(text)


def local_folder(name: str) -> Path | None:
    """Return the folder whose path is `name`, or None."""
    try:
        path = Path(name).expanduser()
        return path.resolve() if name and path.is_dir() else None
    except (OSError, RuntimeError, ValueError):  # a name too long, an unknown ~user, a NUL
        return None


def name_of(model: str | None) -> str | None:
    """Return a model's name for the command line; for a folder, its absolute path."""
    if model is None or not model.startswith(ADDRESS):
        return model
    return str(text_as_path(Path, model))
