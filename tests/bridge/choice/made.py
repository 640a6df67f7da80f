"""A catalogue, devices and a table of losses, small enough to follow by hand."""

from __future__ import annotations

from typing import Any

from h2o_pack.choice.choose import Question
from h2o_pack.choice.losses import Loss, LossTable, MeasuredLoss, MeasuredRecall
from h2o_pack.devices.catalogue import Device
from h2o_pack.facts import KnownModel
from h2o_pack.model import Model
from h2o_pack.spec import CacheSpec, ModelSpec, PackageSpec

GB = 10**9


def known(name: str, weights: int, *, context: int = 32768, **config: Any) -> KnownModel:
    """A plain transformer of the catalogue: 128 KiB of keys and values per token."""
    shapes = {
        "model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 32,
        "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
        "intermediate_size": 6144, "vocab_size": 32000, "max_position_embeddings": context,
        "tie_word_embeddings": True,
    }  # fmt: skip
    return KnownModel(
        name, "here", hub=f"org/{name}", config={**shapes, **config}, weights_bytes=weights
    )


CATALOGUE = (known("small", GB), known("large", 3 * GB), known("medium", 2 * GB))


def device(limit: int | None, name: str = "phone", bandwidth: int | None = 50 * GB) -> Device:
    """A phone on which an app with both entitlements may use so many bytes."""
    return Device(name, name, "", "A", "iphone", None, None, limit, bandwidth, ())


def measured(kv: str, share: float, kl: float, *, loses_facts: bool = False) -> MeasuredLoss:
    """A cache in the table."""
    return MeasuredLoss(kv, share, share, Loss(kl, 1.0, loses_facts))


def table(*caches: MeasuredLoss, recall_pays: bool = True) -> LossTable:
    """A table; without caches one in which fewer bits lose less than fewer rows."""
    usual = (
        measured("dense", 0.125, 0.3),
        measured("8", 0.25, 0.1),
        measured("8", 1.0, 0.001),
        measured("4", 0.5, 0.2),
        measured("4", 1.0, 0.01),
    )
    return LossTable(
        model="measured",
        parameters_sha256="",
        text="",
        samples=12,
        tokens=1024,
        caches=caches or usual,
        recall=(MeasuredRecall(0.25, 0.5, 1.0, better=recall_pays),),
    )


def question(*limits: int, model: Model | None = None, **given: Any) -> Question:
    """What is asked for devices of these limits and 8,192 tokens, all else open.

    given: fields of the cache, and `min_speed`.
    """
    min_speed = given.pop("min_speed", 0.0)
    devices = tuple(device(limit, f"phone {i}") for i, limit in enumerate(limits))
    spec = PackageSpec((ModelSpec(cache=CacheSpec(**{"context": 8192, **given})),))
    return Question(spec, devices, model, min_speed)
