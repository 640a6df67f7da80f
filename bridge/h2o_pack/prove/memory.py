"""Peak memory of the model beside the plan, and beside mlx-lm's own caches."""

from __future__ import annotations

from h2o_pack.measure.held import FULL, WINDOW, HeldRun, held_by
from h2o_pack.memory import terms
from h2o_pack.plan.measured import MLX
from h2o_pack.prove.ids import MEMORY, memory_id
from h2o_pack.prove.notes import Notes

COUNTER = "mx.get_peak_memory in a process of its own"
ARRAYS = "bytes of the arrays after the run"
PEAK, FOOTPRINT = "peak", "footprint"


def prove_memory(notes: Notes, model: str) -> None:
    """Run the setting with H2O caches and with mlx-lm's own; UserError if that fails.

    model: what `h2o_pack.measure.models.load` takes.
    """
    setting = notes.setting
    names = (setting.kv, FULL, WINDOW)
    runs = [
        HeldRun(name, setting.max_kv, setting.prefill_step, setting.context) for name in names
    ]
    ours, full, window = held_by(model, runs)
    notes.note(memory_id(terms.WEIGHTS), ours.weights, "bytes", ARRAYS)
    notes.note(memory_id(terms.KV), ours.rows, "bytes", ARRAYS)
    notes.note(memory_id(terms.LEDGER), ours.ledger, "bytes", ARRAYS)
    notes.note(memory_id(MLX), ours.peak, "bytes", COUNTER)
    for name, held in ((FULL, full), (WINDOW, window)):
        notes.note(f"{MEMORY}/{PEAK}/{name}", held.peak, "bytes", COUNTER)
        notes.note_ratio(
            f"{MEMORY}/ratio/{name}",
            memory_id(MLX),
            f"{MEMORY}/{PEAK}/{name}",
            f"peak with H2O caches over that with mlx-lm's {name}",
        )
    how = "the most that the system counts for the process, Python and MLX included"
    notes.note(f"{MEMORY}/{FOOTPRINT}", ours.footprint, "bytes", how)
