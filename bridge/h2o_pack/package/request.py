"""What a package is asked for with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from h2o_pack.plan.options import CacheOptions
from h2o_pack.vendoring.fetch import Origin


@dataclass(frozen=True)
class ModelRequest:
    """A model as asked for, and its cache."""

    model: str
    cache: CacheOptions


@dataclass(frozen=True)
class PackageRequest:
    """A package as asked for.

    output: its folder, by default one of the package's name. upstream: where Vendor/ comes
    from, a folder with clones or the network; None to leave it out. asset_pack: the model comes
    to the device apart from the app. download: the address of the folder from which the app
    fetches the model, "" where it does not. upstream_version: the one that the package stands
    on, "" for the default. system: a file with the system prompt whose caches the package
    should hold. adapter: the folder of a LoRA adapter. new_app: today's scaffold of the app
    goes to App.new where there is an app. bundle_id: the app's identifier, "" for the one
    that the package at the output has, or one of the maker's own. others: further models, in
    any order.
    """

    model: str
    cache: CacheOptions
    revision: str = ""
    assume_full_attention: bool = False
    name: str | None = None
    output: Path | None = None
    upstream: Path | Origin | None = None
    asset_pack: bool = False
    download: str = ""
    upstream_version: str = ""
    system: Path | None = None
    adapter: Path | None = None
    new_app: bool = False
    bundle_id: str = ""
    others: tuple[ModelRequest, ...] = ()

    @property
    def models(self) -> tuple[ModelRequest, ...]:
        """All models that are asked for."""
        return (ModelRequest(self.model, self.cache), *self.others)
