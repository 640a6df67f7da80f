"""Level 3: compares token ids, chosen tokens and logits of mlx-swift-lm with mlx-lm's."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import mlx.core as mx

from h2o_pack.parity import request as requests
from h2o_pack.parity.op import first_head, relative
from h2o_pack.parity.report import CaseResult, Difference
from h2o_pack.parity.request import Request, Text, TokenCase
from h2o_pack.parity.rounding import MARGIN, Exchange, Run
from h2o_pack.parity.swift import Build, Host, failure

TESTS = "ParityTokensTests"
ANSWER, LOGITS = "answer.json", "answer.safetensors"
IDS = "token ids"
SHOWN = 160
Runs = Callable[[TokenCase, Mapping[str, mx.array]], Iterator[Run]]
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
    """Let the package's Swift test answer the request; UserError if the test fails."""
    for name in (ANSWER, LOGITS):
        (request.folder / name).unlink(missing_ok=True)
    settings = {"H2O_PARITY_TOKENS": str(request.folder), "H2O_MODEL_DIR": str(model)}
    failed = build.run_tests(TESTS, settings, on_line)
    if failed or not (request.folder / ANSWER).exists():
        raise failure("swift test", build.log)


def describe(request: Request, host: Host) -> str:
    """Say which two models are compared, and which cases are left out."""
    text = f"the model of mlx-swift-lm on {host.name} against mlx-lm, {request.dtype}"
    return text + "".join(f"; {name} left out, see docs/parity.md" for name in request.left_out)


def compare(
    request: Request, runs: Runs = lambda _case, _swift: iter(())
) -> tuple[CaseResult, ...]:
    """Compare Swift's answer in the request's folder with mlx-lm's results.

    runs: yields runs of mlx-lm with Swift's tokens and evictions, as `rounding.runs` does.
    """
    document = json.loads((request.folder / ANSWER).read_text("utf-8"))
    swift = cast("dict[str, mx.array]", mx.load(str(request.folder / LOGITS)))
    expected = cast("dict[str, mx.array]", mx.load(str(request.folder / requests.EXPECTED)))
    answers = {case["name"]: case for case in document["cases"]}
    results = [compare_texts(request, document["texts"])]
    for case in request.cases:
        answer = answers.get(case.name)
        result = compare_case(request, case, answer, swift, expected)
        first = result.first_difference
        if case.kv is not None and first is not None and first.kind in ("logits", "token"):
            compare_with = partial(compare_run, request, case, answer, swift)
            is_quantized = case.kv != "dense"
            result = decided_by_rounding(
                result, runs(case, swift), compare_with, is_quantized=is_quantized
            )
        results.append(result)
    return tuple(results)


def compare_run(
    request: Request,
    case: TokenCase,
    answer: Mapping[str, Any] | None,
    swift: Mapping[str, mx.array],
    run: Run,
    allowed: float = 0.0,
) -> CaseResult:
    """Compare Swift's answer to a case with another run of mlx-lm.

    allowed: a difference of logits to allow, if it is above the tolerance.
    """
    expected = {f"{case.name}.{step}": logits for step, logits in enumerate(run.logits)}
    again = replace(case, tokens=tuple(run.tokens))
    return compare_case(request, again, answer, swift, expected, allowed)


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
    pairs = zip(run.logits, other.logits, strict=True)
    return max(relative(own.reshape(-1), others.reshape(-1)) for own, others in pairs)


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


def compare_texts(request: Request, answers: list[Mapping[str, Any]]) -> CaseResult:
    """Compare the token ids of every text; each text counts as a step."""
    result = empty(IDS, request, len(request.texts), 0.0)
    for step, text in enumerate(request.texts):
        detail = ""
        if step >= len(answers):
            detail = "Swift gave no ids"
        elif answers[step].get("error"):
            detail = f"Swift says of {shown(text)}: {answers[step]['error']}"
        elif tuple(answers[step]["ids"]) != text.ids:
            detail = first_id(text, answers[step]["ids"])
        result = result.compared(Difference(None, step, "token id", detail))
    return result


def first_id(text: Text, ids: list[int]) -> str:
    """Name the first id that differs, and its value in Swift and in Python."""
    pairs = zip(text.ids, ids, strict=False)
    shorter = min(len(text.ids), len(ids))
    index = next((i for i, (a, b) in enumerate(pairs) if a != b), shorter)
    python_id, swift_id = (
        row[index] if index < len(row) else "no id" for row in (text.ids, ids)
    )
    return f"id {index} of {shown(text)} is {swift_id} in Swift and {python_id} in Python"


def shown(text: Text) -> str:
    """Return the beginning of a text in quotes."""
    kind = "the message " if text.message else ""
    return f"{kind}{text.text[:40]!r}"


def compare_case(
    request: Request,
    case: TokenCase,
    answer: Mapping[str, Any] | None,
    swift: Mapping[str, mx.array],
    expected: Mapping[str, mx.array],
    allowed: float = 0.0,
) -> CaseResult:
    """Compare which caches evict, and the token and the logits of every step."""
    allowed = max(allowed, tolerance(request.dtype, case.kv))
    result = empty(case.name, request, len(case.tokens), allowed)
    if answer is None:
        return result.compared(Difference(None, 0, "missing", "Swift gave no answer for it"))
    if answer.get("error"):
        step, detail = len(answer["tokens"]), f"Swift says: {answer['error']}"
        return result.compared(Difference(None, step, "error", detail))
    evicting, detail = tuple(answer["evicting"]), ""
    if evicting != case.evicting:
        detail = (
            f"{sum(evicting)} of {len(evicting)} caches evict in Swift, "
            f"{sum(case.evicting)} of {len(case.evicting)} in Python"
        )
    result = result.compared(Difference(None, 0, "caches", detail))
    for step, token in enumerate(case.tokens):
        name = f"{case.name}.{step}"
        if step >= len(answer["tokens"]) or name not in swift:
            difference = Difference(None, step, "missing", "Swift made no token")
            return result.compared(difference)
        result = compare_step(
            result, step, (answer["tokens"][step], token), swift[name], expected[name]
        )
    detail = other_rows(case, swift, expected)
    if detail:
        result = result.tie(None, len(case.tokens) - 1, detail, "kept")
    return result


def other_rows(
    case: TokenCase, swift: Mapping[str, mx.array], expected: Mapping[str, mx.array]
) -> str:
    """Say in which layers different rows are kept at the end, which alone is not an error."""
    layers = []
    for layer, evicts in enumerate(case.evicting):
        name = f"{case.name}.kept.{layer}"
        if not evicts or name not in swift or name not in expected:
            continue
        swift_rows, python_rows = mx.sort(swift[name]), mx.sort(expected[name])
        if not mx.array_equal(swift_rows, python_rows):
            layers.append(f"layer {layer}, {first_head(swift_rows, python_rows, 'Python')}")
    if not layers:
        return ""
    first = layers[0] if len(layers[0]) <= SHOWN else f"{layers[0][:SHOWN]}..."
    return f"different rows are kept at the end in {len(layers)} layers: {first}"


def compare_step(
    result: CaseResult,
    step: int,
    tokens: tuple[int, int],
    logits: mx.array,
    expected: mx.array,
) -> CaseResult:
    """Compare one step; tokens: the ids that Swift and Python chose."""
    swift, python = (a.reshape(-1).astype(mx.float32) for a in (logits, expected))
    if swift.size != python.size:
        detail = f"Swift has {swift.size} logits, Python {python.size}"
        return result.compared(Difference(None, step, "logits", detail))
    size = relative(swift, python)
    so_far = max(result.largest_output_difference, min(size, LARGEST))
    result = replace(result, largest_output_difference=so_far)
    (swift_token, python_token), detail = tokens, ""
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


def tolerance(dtype: str, kv: str | None) -> float:
    """Return the largest difference of logits that is allowed."""
    if kv is None or kv == "dense":
        return TOLERANCES[dtype]
    return max(TOLERANCES[dtype], QUANTIZED)


def empty(name: str, request: Request, steps: int, allowed: float) -> CaseResult:
    """Return a result with nothing compared yet."""
    return CaseResult(
        name=name,
        dtype=request.dtype,
        layers=len(request.cases[0].evicting),
        steps=steps,
        tolerance=allowed,
    )
