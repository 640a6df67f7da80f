"""The parity trace: every layer's inputs and results from a real run of mlx-lm.

A trace is a folder with trace.json and one safetensors file per case. Arrays are
named "<layer>.<step>.<what>": q [B, Hq, L, Dk], k [B, Hkv, L, Dk] and
v [B, Hkv, L, Dv] as the model gave them to the cache; out [B, Hq, L, Dv],
positions int32 [B, Hkv, C], scores float32 [B, Hkv, C] and, with recall, held
bool [B, Hkv, C] after the step. A case that is not routed has no q, out and scores.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import Any

import mlx.core as mx

from h2o_pack.errors import ExitCode, UserError
from h2o_pack.models.config import read_config
from h2o_pack.parity.case import FORMAT, TOLERANCES, RecordedCase
from h2o_pack.parity.recorder import recording_caches
from h2o_py.config import H2OConfig
from h2o_py.loading import load as load_checked
from h2o_py.models import STORAGES
from h2o_py.recall import H2ORecall
from h2o_py.routing import routed

FILE = "trace.json"
PROMPT = Path(__file__).parent / "prompt.txt"
QUESTION = "\n\nThe code of LANTERN is"
DECODED = 48
SHORTEST = 64
DRAFT = 5

# {name of a case: (how rows are stored, the settings of recall)}. Few tokens ask, so that
# chunks are cut in two.
RECALL = {
    "recall": ("dense", H2ORecall(ask=8)),
    "recall kv k8v4": ("k8v4", H2ORecall(ask=8, every=5)),
    "recall kv r16h4": ("r16h4", H2ORecall(ask=1, every=7, archive_bits=16)),
}


@dataclass(frozen=True)
class Case:
    """One run to record: the model's dtype, the cache, and whether it is routed.

    kv: how rows are stored, a name in h2o_py.models.STORAGES; group_size: of
    quantized rows.
    """

    name: str
    dtype: str
    config: H2OConfig
    routed: bool = True
    kv: str = "dense"
    group_size: int = 64


@dataclass(frozen=True)
class Trace:
    """A recorded trace."""

    folder: Path
    cases: tuple[RecordedCase, ...]


def cases(config: H2OConfig, head_dim: int) -> tuple[Case, ...]:
    """Return the runs that together exercise a package's caches.

    float32 comes first: the model keeps what a narrower dtype made of its weights.
    Quantized storages are left out where no group divides the head dim, and recall where
    eviction can spare no rows for it too.
    """
    stored = quantized(head_dim)
    own, config = config, replace(config, recall=None)
    recalling = [
        Case(
            name,
            "float32",
            replace(config, recall=recall),
            kv=kv,
            group_size=stored.get(kv, 64),
        )
        for name, (kv, recall) in RECALL.items()
        if stored
    ]
    return (
        Case("float32", "float32", own),
        Case("published policy", "float32", H2OConfig.paper(config.max_size)),
        Case("not routed", "float32", replace(config, novelty=0.0), routed=False),
        *(
            Case(f"kv {kv}", "float32", config, kv=kv, group_size=group_size)
            for kv, group_size in stored.items()
        ),
        *(case for case in recalling if case.config.recall_rows),
        Case("float16", "float16", config),
        Case("bfloat16", "bfloat16", config),
    )


def quantized(head_dim: int) -> dict[str, int]:
    """Return {kv: group size} of the storages that quantize, if a group divides the heads."""
    group_size = next((size for size in (64, 32) if head_dim % size == 0), 0)
    return {kv: group_size for kv in STORAGES if kv != "dense"} if group_size else {}


def chunks(max_kv: int, prompt: int) -> Iterator[int]:
    """Split a prompt of `prompt` tokens: the lengths of the model's calls.

    Half a cache, three single tokens while rows are still free, a chunk larger
    than the cache, chunks of a quarter of it, and at last a draft of a few tokens.
    """
    left = prompt - DRAFT
    sizes = [max_kv // 2, 1, 1, 1, max_kv + max_kv // 2]
    while left > 0:
        size = min(sizes.pop(0) if sizes else max(1, max_kv // 4), left)
        yield size
        left -= size
    yield DRAFT


def prompt_length(max_kv: int, context: int) -> int:
    """Return four times the cache and some, or what the model's context allows."""
    return min(max(4 * max_kv + max_kv // 2, SHORTEST), context - DECODED)


def record(model_folder: Path, config: H2OConfig, context: int, folder: Path) -> Trace:
    """Run the model once for each case and write the trace to `folder`."""
    model, tokenizer = load(model_folder)
    tokens = prompt_tokens(tokenizer, prompt_length(config.max_size, context))
    folder.mkdir(parents=True, exist_ok=True)
    head_dim = read_config(model_folder / "config.json", assume_full_attention=True).head_dim
    recorded = tuple(
        record_case(model, tokens, case, folder) for case in cases(config, head_dim)
    )
    entries = [asdict(case) for case in recorded]
    text = json.dumps({"format": FORMAT, "cases": entries}, indent=2)
    (folder / FILE).write_text(text + "\n", encoding="utf-8")
    return Trace(folder, recorded)


def load(model_folder: Path) -> tuple[Any, Any]:
    """Load model and tokenizer with mlx-lm; UserError says what it objects to."""
    try:
        model, tokenizer = load_checked(str(model_folder))
    except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise UserError(
            f"mlx-lm cannot load the model: {error!r}",
            where=str(model_folder),
            remedy="Make the package again.",
            code=ExitCode.MODEL,
        ) from error
    return model, tokenizer


def prompt_tokens(tokenizer: Any, length: int) -> list[int]:
    """Encode the shipped text, repeated or cut to `length`, and a question about it."""
    question: list[int] = tokenizer.encode(QUESTION, add_special_tokens=False)
    paragraphs = cycle(PROMPT.read_text("utf-8").strip().split("\n\n"))
    tokens: list[int] = tokenizer.encode(next(paragraphs))
    while len(tokens) < length:
        tokens += tokenizer.encode("\n\n" + next(paragraphs), add_special_tokens=False)
    return tokens[: max(0, length - len(question))] + question


def record_case(model: Any, tokens: list[int], case: Case, folder: Path) -> RecordedCase:
    """Record one case; the model keeps the case's dtype."""
    model.set_dtype(getattr(mx, case.dtype))
    caches, recorders = recording_caches(model, case.config, case.kv, case.group_size)
    arrays: dict[str, mx.array] = {}
    steps = []
    last = 0
    with routed() if case.routed else nullcontext():
        for step, new in enumerate(calls(tokens, case.config.max_size)):
            logits = model(mx.array([new or [last]]), cache=caches)
            steps.append(len(new) or 1)
            for layer, cache in enumerate(recorders):
                if not case.routed:
                    cache.settle()
                arrays |= {f"{layer}.{step}.{what}": a for what, a in cache.taken().items()}
            mx.eval(logits, arrays)
            last = int(mx.argmax(logits[0, -1]))
    file = case.name.replace(",", "").replace(" ", "-") + ".safetensors"
    mx.save_safetensors(str(folder / file), arrays)
    return RecordedCase(
        name=case.name,
        file=file,
        dtype=case.dtype,
        layers=len(recorders),
        scale=recorders[0].scale,
        routed=case.routed,
        kv=case.kv,
        group_size=case.group_size,
        config=case.config.to_dict(),
        steps=tuple(steps),
        tolerance=TOLERANCES[case.dtype],
    )


def calls(tokens: list[int], max_kv: int) -> Iterator[list[int]]:
    """Yield the prompt in chunks, then empty lists for tokens to be decoded."""
    start = 0
    for size in chunks(max_kv, len(tokens)):
        yield tokens[start : start + size]
        start += size
    for _ in range(DECODED):
        yield []
