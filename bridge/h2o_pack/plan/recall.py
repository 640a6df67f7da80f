"""What recall costs: bytes of its archives, and what one recall reads and computes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Literal

from h2o_pack.architectures.model import Model
from h2o_pack.devices.device import Device
from h2o_pack.memory.archive import LayerArchive, archives
from h2o_pack.memory.estimate import archive_bits
from h2o_pack.memory.formulas import row_bytes
from h2o_pack.memory.storages import storage_of
from h2o_pack.plan.speed import Speed, rules
from h2o_pack.plan.workload import Workload
from h2o_pack.results import Count, doc


@dataclass(frozen=True)
class RecallPlan:
    """Recall at the end of the longest conversation, all layers that recall together."""

    layers: Annotated[Count, doc("That recall.")]
    rows: Annotated[Count, doc("Most rows of a KV head that one recall brings back.")]
    every: Annotated[
        Count, doc("Generated tokens from one recall to the next; 0 at prompts only.")
    ]
    archive_bits: Annotated[Count, doc("Of an archived key or value.")]
    archive: Annotated[Literal["memory", "files"], doc("Where the archives are.")]
    archive_tokens: Annotated[Count, doc("Newest tokens that each archive keeps at least.")]
    bytes_per_token: Annotated[Count, doc("Keys, values and novelty of a token.")]
    archive_bytes: Annotated[Count, doc("Of the archives, those in files included.")]
    file_bytes: Annotated[Count, doc("Of whole segments in files.")]
    read_bytes: Annotated[Count, doc("Keys of all tokens, and the rows that come back.")]
    prompt_tokens: Annotated[
        float, doc("Tokens of a prompt that take as many multiply-adds as one recall.")
    ]


def recall_plan(workload: Workload) -> RecallPlan | None:
    """Count what recall costs; None where no layer recalls."""
    model, recall = workload.model, workload.recall
    if recall is None:
        return None
    config = model.config
    bits = archive_bits(workload.caches)
    group_size = storage_of(workload.kv, config, workload.group_size, bits).group_size
    found = archives(config.layers, workload.caches, group_size, config.element_bytes)
    if not found:
        return None
    tokens = workload.tokens
    multiply_adds = sum(
        settings.ask * config.heads * archive.layer.key_dim * archive.tokens(tokens)
        for archive, _, settings in found
    )
    return RecallPlan(
        layers=len(found),
        rows=max(cache.recall_rows for _, cache, _ in found),
        every=recall.every,
        archive_bits=bits,
        archive="files" if workload.archive_in_files else "memory",
        archive_tokens=min(each.tokens(tokens) for each, _, _ in found),
        bytes_per_token=sum(each.token_bytes for each, _, _ in found),
        archive_bytes=sum(each.nbytes(tokens) for each, _, _ in found),
        file_bytes=sum(each.in_flash(tokens) for each, _, _ in found)
        if workload.archive_in_files
        else 0,
        read_bytes=sum(
            read_bytes(archive, tokens, cache.recall_rows) for archive, cache, _ in found
        ),
        prompt_tokens=round(multiply_adds / parameters(model), 1),
    )


def with_recalls(speed: Speed | None, plan: RecallPlan | None, device: Device) -> Speed | None:
    """Return the speed of generation with the reads of one recall in every few tokens."""
    seconds = None if plan is None else read_seconds(plan, device)
    if speed is None or plan is None or seconds is None or not plan.every:
        return speed

    def slowed(tokens_per_second: float) -> float:
        return round(1 / (1 / tokens_per_second + seconds / plan.every), 1)

    low, high = map(slowed, speed.tokens_per_second)
    sustained = None if speed.sustained is None else slowed(speed.sustained)
    return replace(speed, tokens_per_second=(low, high), sustained=sustained)


def read_bytes(archive: LayerArchive, tokens: int, rows: int) -> int:
    """Bytes that one layer's recall reads: every key once, then whole rows."""
    bits = (archive.bits, archive.bits)
    row = row_bytes(archive.layer, bits, archive.group_size, archive.element)
    return archive.tokens(tokens) * archive.key_bytes + rows * row


def parameters(model: Model) -> float:
    """Weights that a token is multiplied with, from the bytes that it reads."""
    config = model.config
    if not (config.bits and config.group_size):
        return model.weights.bytes_per_token / config.element_bytes
    bits = config.bits + 16 * config.element_bytes / config.group_size
    return model.weights.bytes_per_token * 8 / bits


def read_seconds(plan: RecallPlan, device: Device) -> float | None:
    """Seconds that a device takes to read what one recall reads; None where unknown."""
    if plan.archive == "files":
        return round(plan.read_bytes / rules()["flash_read"], 3)
    if device.bandwidth is None:
        return None
    return round(plan.read_bytes / (rules()["efficiency"] * device.bandwidth), 4)
