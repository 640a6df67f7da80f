"""Our caches beside mlx-lm's own, on the models that the paper measured and that are here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from h2o_pack.errors import UserError
from h2o_pack.hub.describe import from_caches
from h2o_pack.measure import models
from h2o_pack.measure.bench.caches import BY_NAME
from h2o_pack.measure.bench.options import Options
from h2o_pack.measure.bench.whole_model import measure_model
from h2o_pack.measure.held import FULL, WINDOW, HeldRun, held_by
from h2o_pack.models.catalogue import find
from h2o_pack.prove import paper
from h2o_pack.prove.expected import RATIO
from h2o_pack.prove.ids import PUBLISHED
from h2o_pack.prove.memory import COUNTER
from h2o_pack.prove.notes import Notes
from h2o_pack.prove.own import folder_of
from h2o_pack.prove.speed import DECODING, READING, read_prompts

ABSENT = "the model is not on this machine, and nothing is downloaded for it"
LOCAL_REVISION = "main"
CONTEXT, STEP = 600, 512  # tokens of the conversation whose peak is measured, and of a chunk


def prove_published(notes: Notes, say: Callable[[str], None]) -> None:
    """Measure each of the paper's models that is on this machine."""
    for model in dict.fromkeys(each.model for each in paper.speeds()):
        folder = on_this_machine(model)
        if folder is None:
            notes.skip(f"{PUBLISHED}/{model}", "tokens/s", DECODING, ABSENT)
            continue
        say(f"the paper's {model}")
        try:
            prove_model(notes, model, folder)
        except UserError as error:
            why = f"{error.what}. {error.remedy}"
            notes.skip(f"{PUBLISHED}/{model}", "tokens/s", DECODING, why)


def on_this_machine(name: str) -> Path | None:
    """Return the folder of a model that is here as a whole: its own, or in the hub's cache."""
    folder, known = folder_of(name), find(name)
    if folder is not None or known is None or not known.hub:
        return folder
    try:
        kept = from_caches(known.hub, LOCAL_REVISION, assume_full_attention=False)
    except UserError:  # a part of it
        return None
    return None if kept is None else kept.folder


def prove_model(notes: Notes, name: str, folder: Path) -> None:
    """Measure decoding, reading a prompt, and peaks of memory.

    Raises:
        UserError: the model cannot be loaded, or does not run.

    """
    here = f"{PUBLISHED}/{name}"
    model, tokenizer = models.load(str(folder))
    [setting], published = paper.published().setting, paper.speeds_of(name)
    options = Options(capacity=setting.max_kv, model=str(folder), tokens=setting.tokens)
    caches = tuple(BY_NAME[each] for each in published)
    decoded = measure_model(caches, options, model, tokenizer)
    for each in caches:
        check, said = f"{here}/decode/{each.name}", published[each.name]
        how = (
            f"{each.title}; {DECODING}; published: {said.tokens_per_second:g} on "
            f"{setting.machine} ({said.source})"
        )
        if each.name in decoded.timings:
            speed = decoded.timings[each.name].tokens_per_second
            notes.note(check, speed, "tokens/s", how)
        else:
            notes.skip(check, "tokens/s", how, decoded.not_run[each.name])
        if each.name != paper.BASELINE:
            over = f"{here}/decode/{paper.BASELINE}"
            beside = f"{each.title} over {BY_NAME[paper.BASELINE].title}, here and published"
            notes.note_ratio(f"{here}/{RATIO}/{each.name}", check, over, beside)
    for cache, speed in read_prompts(model, tokenizer, setting.max_kv).items():
        how = f"{BY_NAME[cache].title}; {READING}; nothing is published of it"
        notes.note(f"{here}/prefill/{cache}", speed, "tokens/s", how)
    del model
    names = ("dense", FULL, WINDOW)
    runs = [HeldRun(each, setting.max_kv, STEP, CONTEXT) for each in names]
    for cache, held in zip(names, held_by(str(folder), runs), strict=True):
        how = f"{cache}; {COUNTER}; nothing is published of it"
        notes.note(f"{here}/peak/{cache}", held.peak, "bytes", how)
