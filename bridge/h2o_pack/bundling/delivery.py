"""How models reach a device: the app's size, and Apple's limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from h2o_pack.errors import usage_error
from h2o_pack.facts import Limit, app_file, store_limits
from h2o_pack.model import Model
from h2o_pack.results import Count, doc
from h2o_pack.sizes import disk_size
from h2o_pack.spec import DeliverySpec


@dataclass(frozen=True, kw_only=True)
class AppSize:
    """Bytes of an app: the download from the store, and the size on the device.

    No compression is assumed, because tensors and encrypted programs hardly shrink.
    """

    models: Annotated[
        Count,
        doc(
            "Bytes of the models' files: tensors, tokenizers, caches of a system prompt, "
            "licenses. An upper bound before the files are listed and the caches are "
            "computed."
        ),
    ]
    code: Annotated[Count, doc("Estimated bytes of the program and MLX's Metal library.")]
    code_least: Annotated[Count, doc("Fewest bytes that the code may take.")]
    code_most: Annotated[Count, doc("Most bytes that the code may take.")]
    download: Annotated[
        Count,
        doc(
            "Bytes of the app in the store: its code, and the models unless devices "
            "download them separately."
        ),
    ]
    installed: Annotated[Count, doc("Bytes of the app on a device, with its models.")]
    asks: Annotated[
        bool,
        doc("Whether the store asks users before it downloads the app over cellular."),
    ]


def app_size(models: int, *, apart: bool = False) -> AppSize:
    """Return the size of an app, given the bytes of its models.

    apart: whether devices download the models separately.
    """
    parts = app_file().part
    code = sum(part.bytes for part in parts)
    download = code if apart else code + models
    return AppSize(
        models=models,
        code=code,
        code_least=sum(part.least for part in parts),
        code_most=sum(part.most for part in parts),
        download=download,
        installed=code + models,
        asks=download > store_limits()["cellular"].bytes,
    )


def model_bytes(model: Model) -> int:
    """Return the bytes of a model's files; an estimate if they are not listed yet."""
    if model.files:
        return model.size
    per_token = sum(file.bytes_per_token for file in app_file().unlisted)
    return model.weights.bytes + per_token * model.config.vocabulary


def limit_exceeded(models: int, delivery: DeliverySpec) -> Limit | None:
    """Return Apple's limit that the models exceed; None if they exceed none."""
    if delivery.download:
        return None
    limit = store_limits()["asset-packs" if delivery.asset_pack else "app"]
    app = app_size(models)
    size = models if delivery.asset_pack else app.download
    return limit if size > limit.bytes else None


def check_app_size(names: Sequence[str], models: int, delivery: DeliverySpec) -> None:
    """Refuse models that together are too large for the chosen delivery."""
    limit = limit_exceeded(models, delivery)
    if limit is None:
        return
    size = disk_size(models)
    if not delivery.asset_pack:
        code = app_size(models).code
        size = f"{size} and the app's code about {disk_size(code)}"
    have = "has" if len(names) == 1 else "together have"
    another = (
        ""
        if delivery.asset_pack or len(names) > 1
        else "Give --asset-pack or --download, so that devices download the model "
        "separately, or "
    )
    remedy = "choose a smaller model or fewer bits."
    raise usage_error(
        f"{' and '.join(names)} {have} {size}, more than {limit.what}",
        f"{another}{remedy}" if another else remedy.capitalize(),
        where=limit.source,
    )
