from __future__ import annotations

from tests.hub.throughput import WAYS, page


def test_a_ratio_is_taken_within_a_turn_and_the_memory_is_the_largest():
    slow = {way: {"seconds": 4.0, "peak": 10e6} for way in WAYS}
    quick = {way: {"seconds": 1.0, "peak": 20e6} for way in WAYS}
    text = page(
        [slow, {**quick, "taken over": {"seconds": 0.5, "peak": 30e6}}, quick], 10**9, 3
    )
    row = next(line for line in text.splitlines() if line.startswith("| `bundle` of a model"))
    assert row.endswith("| 1.00 | 1000 | 1.00 | 30 |")
    assert "One file of 1.00 GB" in text
