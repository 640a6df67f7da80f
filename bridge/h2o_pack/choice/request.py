"""What a choice is asked for, and what was left open."""

from __future__ import annotations

from dataclasses import dataclass

from h2o_pack.architectures.model import Model
from h2o_pack.devices.device import Device
from h2o_pack.plan.options import CacheOptions

CONTEXT = 8192  # tokens of a long conversation, where nobody says how long they get


@dataclass(frozen=True)
class ChoiceRequest:
    """What a package must do, and which parts of it are given.

    devices: all of them must hold it. context: tokens of the longest conversation; None is
    8192, or what a given model can attend to if that is less. model, max_kv, kv and recall
    are chosen where they are None. min_speed: tokens per second after ten minutes. cache: the
    rest of the cache; its own max_kv, kv, context and recall do not count.
    """

    devices: tuple[Device, ...]
    cache: CacheOptions
    context: int | None = None
    model: Model | None = None
    max_kv: int | None = None
    kv: str | None = None
    recall: bool | None = None
    min_speed: float = 0.0
    asset_pack: bool = False
    download: bool = False
    upstream_version: str = ""

    @property
    def apart(self) -> bool:
        """Whether the model reaches the device apart from the app."""
        return self.asset_pack or self.download

    @property
    def tokens(self) -> int:
        """Tokens of the longest conversation."""
        if self.context is not None:
            return self.context
        return CONTEXT if self.model is None else min(CONTEXT, self.model.config.context)
