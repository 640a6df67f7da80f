"""The cards of both models and the curve of the loss, from what was recorded."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from studies.tiny_lm.files import sha256

CURVE = "loss-curve.png"
LICENSE = Path(__file__).parents[2] / "LICENSE"

CARD = """\
---
license: mit
---

# {name}: a 2 M-parameter model that can show forgetting

For tests and demonstrations of h2o-pack, so that everything runs offline. It is not meant
to be talked to. This card is written by `python -m studies.tiny_lm`.

| | |
|---|---|
| Architecture | Qwen3: hidden {hidden}, {layers} layers, {heads} query and {kv_heads} KV \
heads of {head_dim}, feed-forward {feed_forward}, RoPE theta {rope_theta:,.0f}, tied \
embeddings |
| Context | {context:,} tokens |
| Vocabulary | {vocabulary:,}, byte-level BPE, every digit a token |
| Parameters | {parameters:,} |
| Weights | {weights}, {bytes:,} bytes |
| sha256 of model.safetensors | `{sha256}` |
| sha256 of the corpus | `{corpus_sha256}` |
| sha256 of the program | `{program_sha256}` |

## Data

The sources ({source_files} files) and help topics ({topics}) of Python {python}'s standard \
library: {source_tokens:,} tokens of source and {prose_tokens:,} of prose are trained on. \
Whole documents are held out by the MD5 of their names ({held_out_files} and \
{held_out_topics}); they lie in `{held_out}`, with {held_out_names} words that were never a \
fact's name. Facts such as "the code of LANTERN is 4821.", stated in the text and asked for \
again later, are made while training.

## Recipe

Seed {seed}. Muon for matrices (rate {muon_rate}) and AdamW for the rest (rate {adam_rate}), \
weight decay {weight_decay}; {tokens:,} tokens in {steps:,} steps: {stages}. The rate falls in \
a straight line over the last {decay_share:.0%}. {recall_share:.0%} of the sequences have \
facts that are asked for (answers weigh {answer_weight:g}), {copy_share:.0%} at first and \
{late_copy_share:.0%} later is copying, the rest is text, {prose_share:.0%} of it prose. In \
the last {quantised_share:.0%} every other step sees its weights as the 4-bit variant will \
hold them. Took {minutes:.0f} minutes on {threads} CPU threads, PyTorch {torch}; the curve is \
docs/results/tiny-lm/{curve}. A rerun is the same recipe, not the same bits: sums in parallel \
are rounded in another order.

## What it can do

Through mlx-lm{precision}, greedy, {facts} random facts each, in held-out source and with \
held-out words; a fact is asked for after at least so many tokens.

{recall}

| Held out | nats per token | bits per byte | {ngram}-gram, nats per token |
|---|---|---|---|
{losses}

The {ngram}-gram model has modified Kneser-Ney smoothing and the same tokens and training \
text. Losses are over windows of {window:,} tokens that do not overlap.

## Limits

It has seen little prose, follows no instructions, has no chat template and knows nothing of \
the world. It recalls facts in the forms it was trained on. What an eviction policy does to it \
says little about large models.

## License

The training text is the Python standard library's and its documentation's, under the Python \
Software Foundation License Version 2. The weights are distributed under the project's own \
license.
"""


def write_cards(model: Path, variant: Path, records: Path) -> None:
    """Draw the curve and write both cards.

    Raises:
        ValueError: other weights were measured than those that lie there.

    """
    record = json.loads((records / "training.json").read_text(encoding="utf-8"))
    measured = json.loads((records / "measurements.json").read_text(encoding="utf-8"))
    draw_curve(record, records / CURVE)
    for folder in (model, variant):
        found = measured["models"][folder.name]
        if found["sha256"] != sha256(folder / "model.safetensors"):
            raise ValueError(f"{folder} is not what was measured: run --part measure")
        text = card(folder.name, record, measured)
        (folder / "README.md").write_text(text, encoding="utf-8")
        shutil.copyfile(LICENSE, folder / LICENSE.name)


def card(name: str, record: dict[str, Any], measured: dict[str, Any]) -> str:
    """Return the card of the model ("demo") or of its variant."""
    found = measured["models"][name]
    recipe = record["recipe"]
    packed = f"{recipe['bits']} bits, groups of {recipe['group_size']} (mlx_lm.convert)"
    original = name == "demo"
    facts = {
        **record["recipe"],
        **record["architecture"],
        **record["corpus"],
        **{key: value for key, value in record.items() if not isinstance(value, dict)},
        "name": name,
        "precision": "" if original else " in float32 with the packed weights",
        "weights": "bfloat16" if original else packed,
        "held_out": "held_out/" if original else "../demo/held_out/",
        "minutes": record["curve"]["minutes"],
        "stages": stages(record["recipe"]["stages"]),
        "curve": CURVE,
        "bytes": found["bytes"],
        "sha256": found["sha256"],
        "facts": measured["facts"],
        "ngram": measured["order"],
        "window": measured["window"],
        "recall": recall_table(found["recall"], measured["facts"]),
        "losses": "\n".join(loss_rows(found["losses"], measured["ngram"])),
    }
    return CARD.format(**facts)


def stages(given: list[dict[str, int]]) -> str:
    """Say how long sequences were for how many tokens."""
    return ", ".join(
        f"{each['total'] / 1e6:g} M at length {each['length']:,}" for each in given
    )


def recall_table(recalls: Iterable[dict[str, int]], facts: int) -> str:
    """Return one row per trial."""
    rows = ["| Tokens between | Other facts between | Cache | Recall |", "|---|---|---|---|"]
    for each in recalls:
        cache = f"`RotatingKVCache({each['window']}, keep=4)`" if each["window"] else "full"
        share = each["right"] / facts
        rows.append(f"| {each['distance']:,} | {each['others']} | {cache} | {share:.2f} |")
    return "\n".join(rows)


def loss_rows(
    losses: dict[str, dict[str, float]], ngram: dict[str, dict[str, float]]
) -> Iterable[str]:
    """Return one row per part of the held-out text."""
    for part, loss in losses.items():
        yield (
            f"| {part} | {loss['nats_a_token']:.3f} | {loss['bits_a_byte']:.3f} "
            f"| {ngram[part]['nats_a_token']:.3f} |"
        )


def draw_curve(record: dict[str, Any], path: Path) -> None:
    """Draw text and answers over tokens seen; stages and the quantized end are marked."""
    from matplotlib.figure import Figure

    points = record["curve"]["points"]
    seen = [point["tokens"] / 1e6 for point in points]
    figure = Figure(figsize=(9, 4.5), layout="constrained")
    axes = figure.subplots()
    axes.plot(seen, [point["text"] for point in points], label="text", color="tab:blue")
    axes.plot(seen, [point["answers"] for point in points], label="answers", color="tab:orange")
    reached = 0.0
    for stage in record["recipe"]["stages"]:
        axes.axvline(reached, color="0.8", zorder=0)
        axes.text(
            reached, 1.0, f" length {stage['length']}", transform=axes.get_xaxis_transform()
        )
        reached += stage["total"] / 1e6
    quantized = quantized_from(record)
    axes.axvspan(
        quantized, seen[-1], color="tab:green", alpha=0.12, label="half of steps in 4 bits"
    )
    axes.set_yscale("log")
    axes.set_xlabel("million tokens seen")
    axes.set_ylabel("training loss, nats per token (log)")
    axes.legend(loc="center right")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)


def quantized_from(record: dict[str, Any]) -> float:
    """Return after how many million tokens steps begin to see quantized weights."""
    first = (1 - record["recipe"]["quantised_share"]) * record["steps"]
    tokens = 0
    for stage in record["recipe"]["stages"]:
        steps = stage["total"] // stage["batch"]
        if first < steps:
            return float((tokens + first * stage["batch"]) / 1e6)
        first -= steps
        tokens += steps * stage["batch"]
    return float(tokens / 1e6)
