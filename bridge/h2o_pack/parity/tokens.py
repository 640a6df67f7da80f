"""Level 3: compares conversations of the app's session with mlx-lm.

Swift's answer tells what made the caches of each session: the ids that were read, in which
chunks, and the ids that the model chose (`H2OTrace`). mlx-lm reads the same, and its choices,
logits and kept positions are compared.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any, cast

import mlx.core as mx

from h2o_pack.models.texts import first_difference
from h2o_pack.parity import rounding
from h2o_pack.parity.op import first_head, relative
from h2o_pack.parity.parity_report import CaseResult, Difference
from h2o_pack.parity.request import Request, Step, TokenCase, ids_of
from h2o_pack.parity.rounding import MARGIN, Exchange, Run
from h2o_pack.parity.swift import Build, Host, failure
from h2o_pack.parity.text import ids_apart
from h2o_pack.parity.trace import load
from h2o_py.prompts import chunk_of, prompt_chunks

TESTS = "ParityTokensTests"
ANSWER, ARRAYS = "answer.json", "answer.safetensors"
SHOWN = 160
# Stands for infinity, which JSON does not have.
LARGEST = 3.4e38

# The largest allowed difference of logits, divided by the step's largest logit if that is above
# 1. Both sides run the same layers in different builds of MLX, and each layer adds rounding
# errors. For float16 and bfloat16 the tolerance is eight units in the last place.
TOLERANCES = {"float32": 1e-4, "float16": 2**-7, "bfloat16": 2**-4}
# The tolerance with quantized rows, for every dtype. If rounding moves a value across the
# boundary of two codes, it changes by a whole quantization step: mlx-lm's own logits change by
# up to 3e-3 when each weight is moved by one rounding of float32.
QUANTIZED = 1e-2


def answer(request: Request, model: Path, build: Build, on_line: Callable[[str], None]) -> None:
    """Let the package's sessions have the conversation; UserError if the test fails."""
    for name in (ANSWER, ARRAYS):
        (request.folder / name).unlink(missing_ok=True)
    settings = {"H2O_PARITY_TOKENS": str(request.folder), "H2O_MODEL_DIR": str(model)}
    failed = build.run_tests(TESTS, settings, on_line)
    if failed or not (request.folder / ANSWER).exists():
        raise failure("swift test", build.log)


def describe(request: Request, host: Host) -> str:
    """Say what is compared, and which cases are left out."""
    tools = " and a tool" if request.tools else ""
    opening = f"instructions{tools}, " if request.instructions is not None else ""
    text = (
        f"sessions on {host.name} against mlx-lm, {request.dtype}: "
        f"{opening}{len(request.turns)} turns"
    )
    left_out = (f"; {name} left out, see docs/how-it-works.md" for name in request.left_out)
    return text + "".join(left_out)


def compare(
    request: Request, folder: Path, say: Callable[[str], None] = lambda _text: None
) -> tuple[CaseResult, ...]:
    """Compare Swift's answer in the request's folder with mlx-lm.

    folder: the model's. say: called with each case's name.
    """
    document = json.loads((request.folder / ANSWER).read_text("utf-8"))
    swift = cast("dict[str, mx.array]", mx.load(str(request.folder / ARRAYS)))
    answers = {answer["name"]: answer for answer in document["cases"]}
    results = []
    for case in request.cases:
        say(f"reading the same in mlx-lm: {case.name}")
        results.append(compare_case(request, case, answers.get(case.name), swift, folder))
    return tuple(results)


def compare_case(
    request: Request,
    case: TokenCase,
    answer: Mapping[str, Any] | None,
    swift: Mapping[str, mx.array],
    folder: Path,
) -> CaseResult:
    """Compare Swift's answer to a case; a difference that rounding explains becomes a note."""
    if answer is None or answer.get("error"):
        detail = f"Swift says: {answer['error']}" if answer else "Swift gave no answer for it"
        nothing = empty(request, case, 0, 0, 0.0)
        return nothing.compared(Difference(None, 0, "error", detail))
    case = case.pinning(answer["pinned"][1])
    model, tokenizer = load(folder)
    compare_with = partial(compare_run, request, case, answer, swift)
    result = compare_with(rounding.run_case(model, case, answer["steps"]))
    opening = opening_apart(request, case, answer["steps"], chunk_of(model), tokenizer)
    result = result.compared(Difference(None, 0, "prompt", opening))
    if case.returns:
        result = result.compared(Difference(None, 0, "steps", steps_apart(answer)))
    first = result.first_difference
    if first is None or first.kind not in ("logits", "token"):
        return result
    runs = rounding.runs(model, case, answer["steps"], swift)
    return decided_by_rounding(result, runs, compare_with, is_quantized=case.kv != "16")


def opening_apart(
    request: Request, case: TokenCase, steps: Sequence[Step], chunk: int, tokenizer: Any
) -> str:
    """Say how the first prompt differs from Python's, or how its cuts do; "" if they do not."""
    ids = [token for step in steps for token in ids_of(step)]
    detail = ids_apart(ids[: len(request.opening)], request.opening, tokenizer)
    generated = next((i for i, step in enumerate(steps) if "generated" in step), None)
    if detail or generated is None:
        return detail
    lengths = [len(ids_of(step)) for step in steps[:generated]]
    ends = [end for begin, end in case.config.pinned if begin == 0]
    # The session may read more than one token alone, but each of them is a chunk at the end.
    alone = len(list(takewhile(lambda length: length == 1, reversed(lengths))))
    total = sum(lengths)
    allowed = [prompt_chunks(0, total, ends, chunk, n) for n in range(1, max(1, alone) + 1)]
    if lengths in allowed:
        return ""
    return f"the session cuts it into chunks of {lengths}, the package says {allowed[0]}"


def steps_apart(answer: Mapping[str, Any]) -> str:
    """Say where a session that went back and was saved differs from one that did not."""
    own, straight = answer["steps"], answer["straight"]
    if own == straight:
        return ""
    step = first_difference(own, straight)
    one, other = (
        str(steps[step]) if step < len(steps) else "nothing" for steps in (own, straight)
    )
    return (
        f"step {step} of a session that went back and was saved is {one[:SHOWN]}; "
        f"without that it is {other[:SHOWN]}"
    )


def compare_run(
    request: Request,
    case: TokenCase,
    answer: Mapping[str, Any],
    swift: Mapping[str, mx.array],
    run: Run,
    allowed: float = 0.0,
) -> CaseResult:
    """Compare which caches evict, and the logits and choices after each single token.

    allowed: a difference of logits to allow, if it is above the tolerance.
    """
    allowed = max(allowed, tolerance(request.dtype, case.kv))
    evicting, detail = tuple(answer["evicting"]), ""
    result = empty(request, case, len(evicting), len(run.logits), allowed)
    if evicting != run.evicting:
        detail = (
            f"{sum(evicting)} of {len(evicting)} caches evict in Swift, "
            f"{sum(run.evicting)} of {len(run.evicting)} in Python"
        )
    result = result.compared(Difference(None, 0, "caches", detail))
    for count, chosen in choices(answer["steps"]):
        logits = swift.get(f"{case.name}.{count}")
        if logits is None:
            return result.compared(Difference(None, count, "missing", "Swift has no logits"))
        result = compare_step(result, count, chosen, logits, run.logits[count])
    last = sum(len(ids_of(step)) for step in answer["steps"])
    detail = other_rows(case, last, swift, run)
    return result.tie(None, last, detail, "kept") if detail else result


def choices(steps: Sequence[Step]) -> Iterator[tuple[int, int | None]]:
    """Yield the number of tokens read after each step of a single token, and the next choice.

    That is the id that the model chose then; None if the session went on with a prompt.
    """
    count = 0
    following: list[Step | None] = [*steps[1:], None]
    for step, after in zip(steps, following, strict=True):
        count += len(ids_of(step))
        if len(ids_of(step)) == 1:
            yield count, None if after is None else after.get("generated")


def decided_by_rounding(
    result: CaseResult,
    runs: Iterator[Run],
    compare_with: Callable[..., CaseResult],
    *,
    is_quantized: bool,
) -> CaseResult:
    """Turn a difference that rounding explains into a note; return other results unchanged.

    Rounding explains a difference if two things hold. Every row that Swift evicted ties with
    the row that mlx-lm would evict. And Swift's logits equal the logits of the first run, which
    has the model's own weights. With quantized rows, whose codes depend on rounding too,
    Swift's logits may instead equal the logits of another run, or differ from the first run by
    at most MARGIN times the largest difference between the first run and the others.

    runs: made one by one, until they explain the difference. compare_with: compares Swift's
    answer with a run, see `compare_run`.
    """
    before = result.first_difference
    if before is None:
        return result
    accepted: CaseResult | None = None
    gaps: list[tuple[float, ...]] = []
    first: Run | None = None
    change = 0.0  # of the logits, by moving each weight by one rounding
    for draw, run in enumerate(runs):
        exchanges, again = run.exchanges, compare_with(run)
        if any(math.isinf(exchange.gap) for exchange in exchanges):
            return result
        if not is_quantized and not (draw or (exchanges and again.equal)):
            return result
        if first is None:
            first = run
        else:
            gaps.append(run.gaps)
            change = max(change, logits_apart(run, first))
        if accepted is None and again.equal:
            accepted = again
            if draw:
                accepted = again.tie(None, before.step, draw_detail(result, again, draw))
        if not all_tie(exchanges, gaps):
            continue
        if accepted is None and change:
            within = compare_with(first, MARGIN * change)
            if within.equal:
                accepted = within.tie(None, before.step, change_detail(within, change))
        if accepted is not None:
            return with_exchanges(accepted, exchanges, gaps)
    return result


def logits_apart(run: Run, other: Run) -> float:
    """Return the largest difference of two runs' logits, as `compare_step` measures it."""
    return max(
        relative(logits.reshape(-1), other.logits[count].reshape(-1))
        for count, logits in run.logits.items()
    )


def all_tie(exchanges: tuple[Exchange, ...], gaps: list[tuple[float, ...]]) -> bool:
    """Return whether rounding can have decided each of the exchanges."""
    return all(
        exchange.gap <= MARGIN * spread
        for exchange, spread in zip(exchanges, spreads(exchanges, gaps), strict=True)
    )


def spreads(exchanges: tuple[Exchange, ...], gaps: list[tuple[float, ...]]) -> list[float]:
    """Return the largest change of each exchange's gap when the weights are moved.

    If no run with moved weights kept both rows of an exchange, the exchange gets the largest
    change of all others.
    """
    changes = [
        exchange.spread([run[index] for run in gaps])
        for index, exchange in enumerate(exchanges)
    ]
    return [spread or max(changes) for spread in changes]


def with_exchanges(
    result: CaseResult, exchanges: tuple[Exchange, ...], gaps: list[tuple[float, ...]]
) -> CaseResult:
    """Return the result with a note of the first exchange and of their number."""
    if not exchanges:
        return result
    first = exchanges[0]
    python_position, swift_position = first.positions
    detail = (
        f"head {first.head} evicts {swift_position}, Python {python_position}: their "
        f"importances differ by {first.gap:.2g}, and one rounding of each weight changes the "
        f"difference by {spreads(exchanges, gaps)[0]:.2g}; {len(exchanges)} such choices"
    )
    return result.tie(first.layer, first.step, detail, "rows")


def draw_detail(result: CaseResult, again: CaseResult, draw: int) -> str:
    """Say that Swift's logits equal mlx-lm's after each weight was moved by one rounding."""
    return (
        f"decided by rounding: the logits differ by {result.largest_output_difference:.2g} "
        f"from those of mlx-lm, and by {again.largest_output_difference:.2g} from those of "
        f"mlx-lm with each weight moved by one rounding (draw {draw})"
    )


def change_detail(again: CaseResult, change: float) -> str:
    """Say that moving each weight changes mlx-lm's logits about as much as Swift's differ."""
    return (
        f"decided by rounding: the logits differ by {again.largest_output_difference:.2g} from "
        f"those of mlx-lm, which themselves change by up to {change:.2g} when each weight is "
        "moved by one rounding"
    )


def other_rows(case: TokenCase, last: int, swift: Mapping[str, mx.array], run: Run) -> str:
    """Say in which layers different rows are kept at the end, which alone is not an error.

    last: the number of tokens that were read.
    """
    layers = []
    for layer, positions in run.kept.items():
        name = f"{case.name}.kept.{layer}.{last}"
        if name not in swift:
            continue
        swift_rows, python_rows = mx.sort(swift[name]), mx.sort(positions)
        if not mx.array_equal(swift_rows, python_rows):
            layers.append(f"layer {layer}, {first_head(swift_rows, python_rows, 'Python')}")
    if not layers:
        return ""
    first = layers[0] if len(layers[0]) <= SHOWN else f"{layers[0][:SHOWN]}..."
    return f"different rows are kept at the end in {len(layers)} layers: {first}"


def compare_step(
    result: CaseResult,
    step: int,
    chosen: int | None,
    logits: mx.array,
    expected: mx.array,
) -> CaseResult:
    """Compare one step.

    chosen: the id that Swift chose; None if the session went on with a token of a prompt.
    """
    swift, python = (a.reshape(-1).astype(mx.float32) for a in (logits, expected))
    if swift.size != python.size:
        detail = f"Swift has {swift.size} logits, Python {python.size}"
        return result.compared(Difference(None, step, "logits", detail))
    size = relative(swift, python)
    so_far = max(result.largest_output_difference, min(size, LARGEST))
    result = replace(result, largest_output_difference=so_far)
    detail = ""
    python_token = int(mx.argmax(python))
    swift_token = python_token if chosen is None else chosen
    if swift_token != python_token:
        scale = max(1.0, float(mx.abs(python).max()))
        gap = float(python[python_token] - python[swift_token]) / scale
        detail = (
            f"Swift chose {swift_token} (logits {swift[swift_token].item():.6g} there, "
            f"{python[swift_token].item():.6g} in Python), Python {python_token} "
            f"({swift[python_token].item():.6g}, {python[python_token].item():.6g})"
        )
        if gap <= result.tolerance:
            remark = f"near tie: {detail}; they are {gap:.2g} apart in Python"
            result, detail = result.tie(None, step, remark), ""
    result = result.compared(Difference(None, step, "token", detail))
    apart = mx.abs(swift - python)
    worst = int(mx.argmax(mx.where(mx.isnan(apart), float("inf"), apart)))
    detail = (
        f"the logits differ by {size:.2g}, allowed is {result.tolerance:.2g}; most at token "
        f"{worst}: {swift[worst].item():.6g} in Swift, {python[worst].item():.6g} in Python"
    )
    if size <= result.tolerance:
        detail = ""
    return result.compared(Difference(None, step, "logits", detail))


def tolerance(dtype: str, kv: str) -> float:
    """Return the largest difference of logits that is allowed."""
    if kv == "16":
        return TOLERANCES[dtype]
    return max(TOLERANCES[dtype], QUANTIZED)


def empty(
    request: Request, case: TokenCase, layers: int, steps: int, allowed: float
) -> CaseResult:
    """Return a result with nothing compared yet."""
    return CaseResult(
        name=case.name, dtype=request.dtype, layers=layers, steps=steps, tolerance=allowed
    )


def length(request: Request) -> int:
    """Return the number of tokens that the package's own session read."""
    document = json.loads((request.folder / ANSWER).read_text("utf-8"))
    return sum(len(ids_of(step)) for step in document["cases"][-1]["steps"])
