"""The loss curve as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure


def draw_curve(record: dict[str, Any], path: Path) -> None:
    """Draw text and answers over tokens seen; stages and the quantized end are marked."""
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
