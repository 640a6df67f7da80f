"""The parity trace: the inputs and results of a model's caches.

The model runs once. The caches of each case then get the queries, keys and values of this run.
A trace is a folder with trace.json and a folder for each case, which has a safetensors file
for each step, "<step>.safetensors". Its arrays are named "<layer>.<what>": q [B, Hq, L, Dk],
k [B, Hkv, L, Dk] and v [B, Hkv, L, Dv] as the model gave them to the cache, and after the step
out [B, Hq, L, Dv], positions int32 [B, Hkv, C] and scores float32 [B, Hkv, C]. A case that is
not routed has no q, out and scores.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import cycle
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.models.cache import CacheList

from h2o_pack.errors import model_error
from h2o_pack.model import ModelConfig
from h2o_pack.parity.parity_report import CaseResult, Difference
from h2o_pack.parity.swift import Build, failure
from h2o_py import H2OKVCache, fast, make_h2o_cache
from h2o_py.config import H2OConfig, H2ORecall, without_warnings
from h2o_py.loading import load as load_checked
from h2o_py.models import STORAGES
from h2o_py.routing import routed
from h2o_py.storages import group_size_of

Arrays = dict[str, mx.array]

FORMAT = 7
FILE = "trace.json"
REPLAY_TESTS = "ParityReplayTests"
PROMPT = Path(__file__).parent / "prompt.txt"
QUESTION = "\n\nThe code of LANTERN is"
DECODED = 24
SHORTEST = 64
DRAFT = 5
MOST_BYTES = 200_000_000
"""The most bytes of all arrays that are on the disk at once."""

# The largest allowed difference of outputs between two implementations, divided by the step's
# largest output if that is above 1: an output is a mean of values, so its error grows with
# their size. float32 allows for some hundred roundings of 6e-8 each, in another order. float16
# and bfloat16 allow for two units in the last place, of 2**-10 and 2**-7 of the value: two
# nearly equal sums may be rounded to neighboring numbers.
TOLERANCES = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1.6e-2}

# The largest allowed difference of scores. Scores are float32 for every dtype. They are
# computed from logits, which are sums of up to some hundred products, so the tolerance is ten
# times the tolerance of float32 outputs.
SCORE_TOLERANCE = 1e-4

# Cases with recall by name: the storage and the settings of recall. Few tokens of a chunk read
# the whole archive, and a generated token reads few positions, so that their choice counts.
RECALL = {
    "recall": ("16", H2ORecall(ask=8, reach=16)),
    "recall k8v4": ("k8v4", H2ORecall(ask=8, reach=16)),
    "recall heavy=4,recent=16": (
        "heavy=4,recent=16",
        H2ORecall(ask=1, reach=8, archive_bits=16),
    ),
    "recall 4": ("4", H2ORecall(ask=8, reach=16, archive_bits=4)),
}


@dataclass(frozen=True)
class Case:
    """Caches that get the inputs of a run; after recording, also an entry of trace.json.

    kv: the storage, a name in h2o_py.models.STORAGES. group_size: elements of a quantized row
    that share a scale. After recording, layers: the recorded layers, by their index among the
    caches that evict; scale: the factor of logits; steps: the number of new tokens in each call
    of the model.
    """

    name: str
    dtype: str
    config: H2OConfig
    routed: bool = True
    kv: str = "16"
    group_size: int = 64
    layers: tuple[int, ...] = ()
    scale: float = 0.0
    steps: tuple[int, ...] = ()

    @property
    def folder(self) -> str:
        """The name of the case's folder in the trace."""
        return self.name.replace(",", "").replace(" ", "-")

    @property
    def tolerance(self) -> float:
        """The largest difference of outputs that is allowed."""
        return TOLERANCES[self.dtype]

    def document(self) -> dict[str, Any]:
        """Return the case as the Swift tests read it."""
        allowed = {"tolerance": self.tolerance, "score_tolerance": SCORE_TOLERANCE}
        config = self.config.to_dict()
        return {**vars(self), **allowed, "config": config, "folder": self.folder}


@dataclass(frozen=True)
class Inputs:
    """The inputs of attention in the recorded layers, in each step of a run.

    layers: as in Case. scale: the factor of logits. steps: of each step and layer, the arrays
    "q" [B, Hq, L, Dk], "k" [B, Hkv, L, Dk] and "v" [B, Hkv, L, Dv].
    """

    layers: tuple[int, ...]
    scale: float
    steps: tuple[Mapping[int, Arrays], ...]

    @property
    def lengths(self) -> tuple[int, ...]:
        """The number of new tokens in each step."""
        return tuple(step[self.layers[0]]["k"].shape[2] for step in self.steps)


@dataclass(frozen=True)
class Trace:
    """A folder with recorded cases."""

    folder: Path
    cases: tuple[Case, ...]

    def arrays(self, case: Case, step: int) -> Arrays:
        """Return the arrays of one step, "<layer>.<what>"."""
        path = self.folder / case.folder / f"{step}.safetensors"
        return cast("Arrays", mx.load(str(path)))

    def written(self) -> Trace:
        """Write trace.json; returns this trace."""
        document = {"format": FORMAT, "cases": [case.document() for case in self.cases]}
        (self.folder / FILE).write_text(json.dumps(document, indent=2) + "\n", "utf-8")
        return self


def cases(config: H2OConfig, head_dim: int) -> tuple[Case, ...]:
    """Return the cases that together exercise a package's caches.

    Quantized storages and recall are left out if no group size divides the head dimension.
    """
    group_sizes = quantized(head_dim)
    package_config, config = config, replace(config, recall=None)
    recalling = [
        Case(
            name,
            "float32",
            replace(config, recall=recall),
            kv=kv,
            group_size=group_sizes.get(kv, 64),
        )
        for name, (kv, recall) in RECALL.items()
        if group_sizes
    ]
    return (
        Case("float32", "float32", package_config),
        Case("published policy", "float32", H2OConfig.paper(config.max_size)),
        Case("not routed", "float32", config, routed=False),
        *(
            Case(f"kv {kv}", "float32", config, kv=kv, group_size=group_size)
            for kv, group_size in group_sizes.items()
        ),
        *recalling,
        Case("float16", "float16", config),
        Case("bfloat16", "bfloat16", config),
    )


def quantized(head_dim: int) -> dict[str, int]:
    """Return {kv: group size} of storages that quantize; {} if no group divides head_dim."""
    group_size = group_size_of([head_dim])
    return {kv: group_size for kv in STORAGES if kv != "16"} if group_size else {}


def chunks(max_kv: int, prompt: int) -> Iterator[int]:
    """Split a prompt of `prompt` tokens; yields the number of tokens in each call of the model.

    These are half a cache, three single tokens while rows are still free, a chunk larger than
    the cache, chunks of a quarter of it, and finally a few tokens like a draft model's.
    """
    rest = prompt - DRAFT
    sizes = [max_kv // 2, 1, 1, 1, max_kv + max_kv // 2]
    while rest > 0:
        size = min(sizes.pop(0) if sizes else max(1, max_kv // 4), rest)
        yield size
        rest -= size
    yield DRAFT


def prompt_length(max_kv: int, context: int) -> int:
    """Return the prompt's length: 2.5 * `max_kv`, at least SHORTEST, within the context.

    So `chunks` yields each kind of chunk, and rows are evicted in most of them.
    """
    return min(max(2 * max_kv + max_kv // 2, SHORTEST), context - DECODED)


def record(
    model_folder: Path, config: H2OConfig, described: ModelConfig, folder: Path
) -> Iterator[Trace]:
    """Run the model once and record each case; yields traces of at most MOST_BYTES."""
    model, tokenizer = load(model_folder)
    config = fitting(config, described)
    tokens = prompt_tokens(tokenizer, prompt_length(config.max_size, described.context))
    with in_float32(model):
        inputs = attention_inputs(model, tokens, config)
    recorded: list[Case] = []
    total = largest = 0
    shutil.rmtree(folder, ignore_errors=True)
    for case in cases(config, described.head_dim):
        if recorded and total + largest > MOST_BYTES:
            yield Trace(folder, tuple(recorded)).written()
            shutil.rmtree(folder)
            recorded, total = [], 0
        recorded.append(record_case(inputs, case, folder))
        size = sum(file.stat().st_size for file in (folder / recorded[-1].folder).iterdir())
        total, largest = total + size, max(largest, size)
    yield Trace(folder, tuple(recorded)).written()


def fitting(config: H2OConfig, described: ModelConfig) -> H2OConfig:
    """Return the policy, with fewer rows if one layer's trace would exceed MOST_BYTES."""
    layers = [layer for layer in described.layers if layer.kind == "full"]
    of_token = max(
        (described.heads + layer.kv_heads) * (layer.key_dim + layer.value_dim)
        for layer in layers
    )
    most = MOST_BYTES // (of_token * mx.float32.size)
    size = config.max_size
    while prompt_length(size, described.context) + DECODED > most and size > SHORTEST:
        size //= 2
    return config if size == config.max_size else with_rows(config, size)


def with_rows(config: H2OConfig, size: int) -> H2OConfig:
    """Return a policy with `size` rows, divided in the same proportions."""
    sinks = min(config.sink_size, size // 8)
    recent = round(size * config.recent_budget / config.max_size)
    recent = min(max(1, recent), size - sinks - 2)
    heavy = round(size * config.heavy_budget / config.max_size)
    with without_warnings():  # of few recent tokens
        return replace(
            config,
            max_size=size,
            sink_size=sinks,
            heavy_budget=min(heavy, size - sinks - recent),
            recent_budget=recent,
            pinned=((sinks, sinks + 1),) if config.pinned else (),
        )


@lru_cache(maxsize=1)
def load(model_folder: Path) -> tuple[Any, Any]:
    """Load model and tokenizer with mlx-lm; UserError with mlx-lm's message if that fails.

    The last model stays in memory for the other levels: a function that changes it restores it.
    """
    try:
        model, tokenizer = load_checked(str(model_folder))
    except Exception as error:  # a malicious model can make the libraries raise anything
        raise model_error(
            f"mlx-lm cannot load the model: {error!r}",
            "Make the package again.",
            where=str(model_folder),
        ) from error
    return model, tokenizer


@contextmanager
def with_weights(model: Any) -> Iterator[list[tuple[str, mx.array]]]:
    """Yield a model's weights, which may be changed in the block, and restore them."""
    weights = cast("list[tuple[str, mx.array]]", tree_flatten(model.parameters()))
    try:
        yield weights
    finally:
        model.update(tree_unflatten(weights))


@contextmanager
def in_float32(model: Any) -> Iterator[None]:
    """Let a model compute in float32 in the block."""
    with with_weights(model):
        model.set_dtype(mx.float32)
        yield


def prompt_tokens(tokenizer: Any, length: int) -> list[int]:
    """Encode the shipped text, repeated or cut to `length`, and a question about it."""
    question: list[int] = tokenizer.encode(QUESTION, add_special_tokens=False)
    paragraphs = cycle(PROMPT.read_text("utf-8").strip().split("\n\n"))
    tokens: list[int] = tokenizer.encode(next(paragraphs))
    while len(tokens) < length:
        tokens += tokenizer.encode("\n\n" + next(paragraphs), add_special_tokens=False)
    return tokens[: max(0, length - len(question))] + question


def attention_inputs(model: Any, tokens: list[int], config: H2OConfig) -> Inputs:
    """Run the model with the policy; returns the inputs of recorded layers."""
    caches = make_h2o_cache(model, config)
    members = [m for c in caches for m in (c.caches if isinstance(c, CacheList) else [c])]
    recorders: list[Any] = [cache for cache in members if isinstance(cache, H2OKVCache)]
    for cache in recorders:  # other layers keep mlx-lm's caches
        cache.__class__ = RecordingCache
    steps: list[dict[int, Arrays]] = []
    layers: tuple[int, ...] = ()
    last = 0
    with routed():
        for new in calls(tokens, config.max_size):
            logits = model(mx.array([new or [last]]), cache=caches)
            layers = layers or recorded_layers(recorders, len(new), len(tokens) + DECODED)
            steps.append({layer: recorders[layer].inputs for layer in layers})
            mx.eval(logits, steps[-1])
            last = int(mx.argmax(logits[0, -1]))
    return Inputs(layers, recorders[0].scale, tuple(steps))


def recorded_layers(
    recorders: Sequence[Any], tokens_so_far: int, tokens: int
) -> tuple[int, ...]:
    """Choose the layers to record: the first, the last, and one of each shape.

    Returns at least one layer, and at most as many as fit into MOST_BYTES. tokens_so_far:
    number of tokens that the recorders have seen. tokens: number of tokens of the whole run.
    """
    of_shape: dict[tuple[Any, ...], int] = {}
    for layer, cache in enumerate(recorders):
        heads, dims = cache.inputs["k"].shape[1], cache.inputs["v"].shape[-1]
        of_shape.setdefault((heads, cache.inputs["k"].shape[-1], dims), layer)
    count = len(recorders)
    candidates = dict.fromkeys((*of_shape.values(), 0, count - 1))
    layers: list[int] = []
    room = MOST_BYTES
    for layer in candidates:
        cache = recorders[layer]
        arrays = (*cache.inputs.values(), cache.inputs["q"], cache.positions, cache.scores)
        room -= sum(array.nbytes for array in arrays) * tokens // tokens_so_far
        if layers and room < 0:
            break
        layers.append(layer)
    return tuple(sorted(layers))


class RecordingCache(H2OKVCache):
    """A cache that keeps the queries, keys and values of the model's last step."""

    inputs: Arrays
    scale: float

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Keep keys and values, then write them as any cache does."""
        self.inputs = {"k": keys, "v": values}
        return super().update_and_fetch(keys, values)

    def attend(self, queries: mx.array, **options: Any) -> mx.array:
        """Keep the queries and their scale, then attend as any cache does."""
        self.inputs["q"], self.scale = queries, options["scale"]
        return super().attend(queries, **options)


def calls(tokens: list[int], max_kv: int) -> Iterator[list[int]]:
    """Yield the prompt in chunks, then empty lists for tokens to be decoded."""
    start = 0
    for size in chunks(max_kv, len(tokens)):
        yield tokens[start : start + size]
        start += size
    for _ in range(DECODED):
        yield []


def record_case(inputs: Inputs, case: Case, folder: Path) -> Case:
    """Give the inputs to the caches of a case, step by step, and write their results."""
    case = replace(case, layers=inputs.layers, scale=inputs.scale, steps=inputs.lengths)
    caches = make_caches(case)
    (folder / case.folder).mkdir(parents=True)
    for step, of_layers in enumerate(inputs.steps):
        arrays: Arrays = {}
        for layer, cache in zip(case.layers, caches, strict=True):
            step_inputs = {
                name: array.astype(getattr(mx, case.dtype))
                for name, array in of_layers[layer].items()
                if case.routed or name != "q"
            }
            out = advance(cache, step_inputs, case.scale)
            results = {"positions": cache.positions, "out": out}
            if out is not None:
                results["scores"] = cache.scores
            arrays |= {
                f"{layer}.{name}": array
                for name, array in {**step_inputs, **results}.items()
                if array is not None
            }
        mx.save_safetensors(str(folder / case.folder / f"{step}.safetensors"), arrays)
    return case


def make_caches(case: Case, backend: Any = fast) -> list[Any]:
    """Make the caches of a case's layers; backend: the core or the reference."""
    caches = [STORAGES[case.kv](case.config, case.group_size) for _ in case.layers]
    for cache in caches:
        cache.backend = backend
    return caches


def advance(cache: Any, inputs: Mapping[str, mx.array], scale: float) -> mx.array | None:
    """Give a cache one step's q, k and v; returns its output, None if there is no q."""
    cache.update_and_fetch(inputs["k"], inputs["v"])
    if "q" not in inputs:
        cache.settle()
        return None
    mask = "causal" if inputs["k"].shape[2] > 1 else None
    out: mx.array = cache.attend(inputs["q"], scale=scale, mask=mask)
    return out


def replay(
    trace: Trace, build: Build, work: Path, on_line: Callable[[str], None]
) -> tuple[CaseResult, ...]:
    """Let the package's Swift caches replay a trace (level 2); UserError if the test fails."""
    report = work / "report.json"
    report.unlink(missing_ok=True)
    settings = {"H2O_PARITY_TRACE": str(trace.folder), "H2O_PARITY_REPORT": str(report)}
    failed = build.run_tests(REPLAY_TESTS, settings, on_line)
    results = read_report(report, trace) if report.exists() else ()
    if len(results) != len(trace.cases) or (failed and all(result.equal for result in results)):
        raise failure("swift test", build.log)
    return results


def read_report(path: Path, trace: Trace) -> tuple[CaseResult, ...]:
    """Read the results that the Swift tests wrote."""
    tolerances = {case.name: case.tolerance for case in trace.cases}
    results = []
    for case in json.loads(path.read_text("utf-8"))["cases"]:
        first = case.pop("first_difference", None)
        difference = Difference(**first) if first else None
        results.append(
            CaseResult(**case, tolerance=tolerances[case["name"]], first_difference=difference)
        )
    return tuple(results)
