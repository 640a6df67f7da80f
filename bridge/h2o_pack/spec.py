"""What a package is asked for with: one value from the command line to the lock.

Options of the command line, a table of h2o-pack.toml and the lock of a package are three
spellings of a `PackageSpec`. What is open in it is None; `choice` fills it, and the plan of a
package holds it whole.
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
from h2o_pack.errors import ExitCode, UserError
from h2o_pack.naming import readable
from h2o_py.budgets import Budgets
from h2o_py.config import POLICIES
from h2o_py.policy_fields import FIELDS

Archive = Literal["memory", "files"]
PREFILL_STEP = 512  # mlx-swift-lm's prefillStepSize
ADDRESS = "file://"
"""With this begin paths that are not UTF-8, which JSON can hold only as addresses."""


@dataclass(frozen=True)
class CacheSpec:
    """A model's cache; max_kv, kv and recall are open where they are None.

    max_kv, context and prefill_step are in tokens. kv: how rows are stored. recall: whether
    evicted rows come back from an archive. policy: a name of `NAMED_POLICIES`. settings: those
    that differ from the policy's defaults, by their names in H2OConfig. budgets: those that
    differ per layer. context: the longest conversation that memory is planned for.
    prefill_step: tokens of a prompt that the model reads at once. archive: where the archive
    is. recall_rows, recall_every, archive_bits and archive_limit, the bytes of a layer's
    archive, are further settings of recall.
    """

    max_kv: int | None = None
    kv: str | None = None
    recall: bool | None = None
    policy: str = "standard"
    settings: Mapping[str, Any] = field(default_factory=dict)
    budgets: Budgets | None = None
    context: int | None = None
    prefill_step: int = PREFILL_STEP
    recall_rows: int | None = None
    recall_every: int | None = None
    archive_bits: int | None = None
    archive_limit: int | None = None
    archive: Archive = "memory"

    @property
    def archive_in_files(self) -> bool:
        """Whether evicted tokens wait in files, and not in memory."""
        return bool(self.recall) and self.archive == "files"

    @property
    def recall_settings(self) -> dict[str, Any]:
        """The settings of recall that are given, by the names of their options."""
        values = {name: getattr(self, name) for name in OF_RECALL}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True)
class ModelSpec:
    """A model and its cache.

    model: alias, folder, or id or address on the hub; None where it is open. adapter: the
    folder of a LoRA adapter.
    """

    model: str | None = None
    cache: CacheSpec = field(default_factory=CacheSpec)
    revision: str = ""
    assume_full_attention: bool = False
    adapter: Path | None = None

    @property
    def folder(self) -> Path | None:
        """The absolute path of the folder that `model` names; None if it names no folder."""
        return None if self.model is None else local_folder(self.model)

    @property
    def is_open(self) -> bool:
        """Whether the model or its rows are to be chosen."""
        return self.model is None or self.cache.max_kv is None

    def filled(self) -> ModelSpec:
        """Return the spec with defaults where nothing was chosen."""
        cache = self.cache
        usual = replace(cache, kv=cache.kv or "dense", recall=bool(cache.recall))
        return replace(self, cache=usual)


@dataclass(frozen=True)
class DeliverySpec:
    """How the models reach a device, in the app if nothing is given.

    asset_pack: Apple hosts them. download: the address from which the app fetches them, without
    a last `/`.

    Raises:
        UserError: both are given, or the address is none that an app should have.

    """

    asset_pack: bool = False
    download: str = ""

    def __post_init__(self) -> None:
        """Check the address."""
        if self.download and self.asset_pack:
            raise UserError(
                "--asset-pack and --download cannot be given together",
                remedy="Give only one of them: each brings the model to the device.",
                code=ExitCode.USAGE,
            )
        if self.download:
            object.__setattr__(self, "download", check_server(self.download))

    @property
    def apart(self) -> bool:
        """Whether the models reach the device apart from the app."""
        return self.asset_pack or bool(self.download)


LOOPBACK = ("127.0.0.1", "::1", "localhost")
PLAIN = re.compile(r"[A-Za-z0-9._~:/%\[\]@!$&'()*+,;=-]+")
"""What a URL may consist of, but for a query and a fragment."""
ADDRESS_REMEDY = "Give the folder's address, such as https://models.example.com/chat/1."


def check_server(url: str) -> str:
    """Return the address of the folder under which the model's files lie, without a last `/`.

    Raises:
        UserError: it is not https, has a user, a password, a query or a fragment, or is no
            address. http is for trials on this machine only.

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
    """Make the error for an address, which may contain a secret and is not repeated."""
    return UserError(f"--download {what}", remedy=ADDRESS_REMEDY, code=ExitCode.USAGE)


@dataclass(frozen=True)
class AppSpec:
    """The package and its app.

    name: None for the model's. bundle_id: "" for one of the maker's own. system: text of the
    system prompt whose caches are computed, "" for none. proof: whether the app gets a page
    that measures it for `h2o-pack prove`.
    """

    name: str | None = None
    bundle_id: str = ""
    system: str = ""
    proof: bool = False


@dataclass(frozen=True)
class DevicesSpec:
    """Names of the devices that must hold the package, and a user's own file of devices."""

    names: tuple[str, ...] = ()
    file: Path | None = None


@dataclass(frozen=True)
class PackageSpec:
    """A package.

    models: in any order. upstream: version of mlx-swift-lm to stand on, "" for the newest.
    """

    models: tuple[ModelSpec, ...] = (ModelSpec(),)
    delivery: DeliverySpec = DeliverySpec()
    app: AppSpec = AppSpec()
    upstream: str = ""
    devices: DevicesSpec = DevicesSpec()

    def of(self, model: ModelSpec) -> PackageSpec:
        """Return the spec with this model alone."""
        return replace(self, models=(model,))


ONE_MODEL = {
    "--revision": "Write ID@REVISION as --model.",
    "--adapter": "Merge the adapter into a model with mlx_lm.fuse.",
    "--budgets": "Leave out --budgets: all layers then have --max-kv rows.",
    "--asset-pack": "Make a package for each model, or leave out --asset-pack.",
    "--download": "Make a package for each model, or leave out --download.",
    "--measured": "Give only the model that the device measured.",
}
"""Options for a package with one model, and what to do where several are given."""


def refuse_with_several(spec: PackageSpec, *, measured: bool = False) -> None:
    """Refuse options that are for one model where several are given."""
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
            raise UserError(
                f"{flag} is only for a package with one model, but {len(spec.models)} are "
                "given",
                remedy=ONE_MODEL[flag],
                code=ExitCode.USAGE,
            )


def to_document(spec: PackageSpec, source: str) -> dict[str, Any]:
    """Return a spec as a lock holds it: JSON, with folders by their whole paths.

    source: the lock's name, which errors about budgets show.
    """
    import msgspec  # help needs none of this

    name = spec.app.name
    spec = replace(
        spec,
        models=tuple(lockable(model, source) for model in spec.models),
        app=replace(spec.app, name=None if name is None else readable(name)),
    )
    document: dict[str, Any] = msgspec.to_builtins(spec, enc_hook=path_as_text)
    return document


def lockable(spec: ModelSpec, source: str) -> ModelSpec:
    """Return a model whose folder is a whole path, with budgets that `source` holds."""
    budgets = spec.cache.budgets and replace(spec.cache.budgets, source=source)
    return replace(
        spec,
        model=spec.model if spec.folder is None else path_as_text(spec.folder),
        cache=replace(spec.cache, budgets=budgets),
    )


def from_document(document: Mapping[str, Any], where: Path) -> PackageSpec:
    """Return the spec that the lock at `where` holds, as the command line would give it.

    Raises:
        UserError: it is no spec, or has a key, setting or policy that this version lacks.

    """
    import msgspec

    try:
        spec = msgspec.convert(document, PackageSpec, dec_hook=text_as_path)
        refuse_unknown(document, msgspec.to_builtins(spec, enc_hook=path_as_text), spec)
    except ValueError as error:
        raise UserError(
            f"the lock has options that this version cannot read: {error}",
            where=str(where),
            remedy="Run the `h2o-pack ios` command of this package again. It does not "
            "change App and your own files.",
            code=ExitCode.VERSION,
        ) from error
    models = tuple(
        replace(model, model=name_of(model.model), cache=with_tuples(model.cache))
        for model in spec.models
    )
    return replace(spec, models=models)


def refuse_unknown(
    document: Mapping[str, Any], written: Mapping[str, Any], spec: PackageSpec
) -> None:
    """Refuse keys, settings and policies that a lock has and this version lacks.

    written: the document as this version writes it.

    Raises:
        ValueError: names one of them.

    """
    unknown = [*keys_beside(document, written)]
    for model in spec.models:
        unknown += model.cache.settings.keys() - {field.name for field in FIELDS}
        unknown += {model.cache.policy} - POLICIES.keys()
    if unknown:
        raise ValueError(f"unknown option {min(unknown)!r}")
    if not spec.models or any(model.is_open for model in spec.models):
        raise ValueError("a model is missing")


def keys_beside(value: Any, other: Any) -> Iterator[str]:
    """Yield the keys of a JSON value, at any depth, that another value lacks."""
    if isinstance(value, dict) and isinstance(other, dict):
        yield from value.keys() - other.keys()
        for key in value.keys() & other.keys():
            yield from keys_beside(value[key], other[key])
    if isinstance(value, (list, tuple)) and isinstance(other, (list, tuple)):
        for part, other_part in zip(value, other, strict=False):
            yield from keys_beside(part, other_part)


def path_as_text(path: Path) -> str:
    """Return a path as text that holds wherever the command runs."""
    whole = path.resolve()
    try:
        os.fsencode(whole).decode("utf-8")
    except UnicodeDecodeError:
        return whole.as_uri()
    return str(whole)


def text_as_path(_kind: type, text: object) -> Path:
    """Return the path that `path_as_text` wrote."""
    if not isinstance(text, str):
        raise ValueError(f"expected a path, got {text!r}")  # noqa: TRY004 - msgspec's own
    if text.startswith(ADDRESS):
        return Path(os.fsdecode(unquote_to_bytes(text.removeprefix(ADDRESS))))
    return Path(text)


def local_folder(name: str) -> Path | None:
    """Return the folder that `name` is the path of, or None."""
    try:
        path = Path(name).expanduser()
        return path.resolve() if name and path.is_dir() else None
    except (OSError, RuntimeError, ValueError):  # a name too long, an unknown ~user, a NUL
        return None


def name_of(model: str | None) -> str | None:
    """Return a model as the command line names it, a folder by its whole path."""
    if model is None or not model.startswith(ADDRESS):
        return model
    return str(text_as_path(Path, model))


def with_tuples(cache: CacheSpec) -> CacheSpec:
    """Return a cache with its settings as the command line gives them: ranges are tuples."""
    settings = {name: as_tuples(value) for name, value in cache.settings.items()}
    return replace(cache, settings=settings)


def as_tuples(value: Any) -> Any:
    """Return a value with tuples in the place of lists."""
    return tuple(map(as_tuples, value)) if isinstance(value, list) else value
