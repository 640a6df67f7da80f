"""How keys and values are stored, by the names that h2o_py and the command line use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from h2o_pack.errors import ExitCode, UserError, nearest

if TYPE_CHECKING:
    from h2o_pack.models.model import ModelConfig

GROUP_SIZE = 64


@dataclass(frozen=True)
class Storage:
    """Bits of keys and values; 16 stands for the dtype they come in.

    heavy: of all rows, or of all but the newest where `recent` has bits of their own.
    group_size: elements that share a scale and a bias where bits are 4 or 8.
    """

    name: str
    heavy: tuple[int, int]
    recent: tuple[int, int] | None = None
    group_size: int = GROUP_SIZE


STORAGES = {
    each.name: each
    for each in (
        Storage("dense", (16, 16)),
        Storage("8", (8, 8)),
        Storage("k8v4", (8, 4)),
        Storage("4", (4, 4)),
        Storage("r16h8", (8, 8), (16, 16)),
        Storage("r16h4", (4, 4), (16, 16)),
        Storage("r8h4", (4, 4), (8, 8)),
    )
}
"""As `h2o_py.models.STORAGES`, which needs mlx to be imported; a test compares them."""

SYNONYMS = {"mixed": "r16h8"}


def storage_of(name: str, config: ModelConfig, group_size: int = GROUP_SIZE) -> Storage:
    """Find a storage and check that the model's heads can be stored so.

    Raises:
        UserError: there is no such storage, or a head dim is no multiple of the group.

    """
    known = SYNONYMS.get(name, name)
    if known not in STORAGES:
        raise UserError(
            f'--kv "{name}" is not a way to store keys and values',
            remedy=f"{nearest(name, [*STORAGES, *SYNONYMS])}Choose one of "
            f"{', '.join([*STORAGES, *SYNONYMS])}.",
            code=ExitCode.USAGE,
        )
    found = STORAGES[known]
    if found.heavy == (16, 16):
        return found
    for index in config.evicting:
        layer = config.layers[index]
        for dim in (layer.key_dim, layer.value_dim):
            if dim % group_size:
                raise UserError(
                    f"--kv {name} quantises in groups of {group_size} elements, and layer "
                    f"{index} has heads of {dim}",
                    remedy="Use --kv dense.",
                    code=ExitCode.USAGE,
                )
    return Storage(found.name, found.heavy, found.recent, group_size)
