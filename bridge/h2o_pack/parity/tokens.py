"""Level 3: the bundled model of mlx-swift-lm against mlx-lm, ids, tokens and logits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import mlx.core as mx

from h2o_pack.parity import request as requests
from h2o_pack.parity.host import Host
from h2o_pack.parity.op import first_head, largest
from h2o_pack.parity.report import CaseResult, Difference
from h2o_pack.parity.request import Request, Text, TokenCase
from h2o_pack.parity.toolchain import Build, failure

TESTS = "ParityTokensTests"
ANSWER, LOGITS = "answer.json", "answer.safetensors"
IDS = "token ids"
SHOWN = 160
MovedRuns = Callable[[TokenCase], Iterable[tuple[list[int], list[mx.array]]]]
# JSON has no infinity.
LARGEST = 3.4e38

# Largest difference of logits allowed, relative to the largest logit of the step where that
# is above 1. Both sides run the same layers in other builds of MLX, and every layer adds the
# roundings of its sums; float16 and bfloat16: eight units in the last place.
TOLERANCES = {"float32": 1e-4, "float16": 2**-7, "bfloat16": 2**-4}
# A quantized element that two roundings put on either side of a code's boundary moves by a
# step of its group, whatever the dtype: mlx-lm differs from itself by up to 3e-3 when each
# weight is moved by one rounding of float32.
QUANTIZED = 1e-2


def answer(request: Request, model: Path, build: Build, on_line: Callable[[str], None]) -> None:
    """Let the package answer; UserError when it cannot."""
    for name in (ANSWER, LOGITS):
        (request.folder / name).unlink(missing_ok=True)
    settings = {"H2O_PARITY_TOKENS": str(request.folder), "H2O_MODEL_DIR": str(model)}
    failed = build.run_tests(TESTS, settings, on_line)
    if failed or not (request.folder / ANSWER).exists():
        raise failure("swift test", build.log)


def describe(request: Request, host: Host) -> str:
    """Say what is compared with what, and what is left out."""
    said = f"the model of mlx-swift-lm on {host.name} against mlx-lm, {request.dtype}"
    return said + "".join(f"; {name} left out, see docs/parity.md" for name in request.left_out)


def compare(request: Request, moved: MovedRuns = lambda _case: ()) -> tuple[CaseResult, ...]:
    """Compare the answer in the request's folder with what mlx-lm said.

    moved: gives what mlx-lm says of a case when each weight is moved by one rounding.
    """
    document = json.loads((request.folder / ANSWER).read_text("utf-8"))
    ours = cast("dict[str, mx.array]", mx.load(str(request.folder / LOGITS)))
    expected = cast("dict[str, mx.array]", mx.load(str(request.folder / requests.EXPECTED)))
    answers = {case["name"]: case for case in document["cases"]}
    results = [compare_texts(request, document["texts"])]
    for case in request.cases:
        said = answers.get(case.name)
        result = compare_case(request, case, said, ours, expected)
        if rounding_may_decide(result, case):
            again = (
                compare_case(
                    request,
                    replace(case, tokens=tuple(tokens)),
                    said,
                    ours,
                    {**expected, **{f"{case.name}.{i}": each for i, each in enumerate(logits)}},
                )
                for tokens, logits in moved(case)
            )
            result = decided_by_rounding(result, again)
        results.append(result)
    return tuple(results)


def rounding_may_decide(result: CaseResult, case: TokenCase) -> bool:
    """Tell whether a difference is one of logits behind quantized rows."""
    found = result.first_difference
    quantized = case.kv is not None and case.kv != "dense"
    return quantized and found is not None and found.kind in ("logits", "token")


def decided_by_rounding(result: CaseResult, again: Iterable[CaseResult]) -> CaseResult:
    """Take the first comparison with moved weights that finds all equal, if there is one."""
    for draw, other in enumerate(again, start=1):
        if other.equal and result.first_difference is not None:
            said = (
                f"decided by rounding: the logits differ by "
                f"{result.largest_output_difference:.2g} from those of mlx-lm, and by "
                f"{other.largest_output_difference:.2g} from those that it gives when each "
                f"weight is moved by one rounding (draw {draw})"
            )
            return other.tie(None, result.first_difference.step, said)
    return result


def compare_texts(request: Request, said: list[Mapping[str, Any]]) -> CaseResult:
    """Compare the ids of every text; a step is a text."""
    result = empty(IDS, request, len(request.texts), 0.0)
    for step, text in enumerate(request.texts):
        detail = ""
        if step >= len(said):
            detail = "Swift gave no ids"
        elif said[step].get("error"):
            detail = f"Swift says of {shown(text)}: {said[step]['error']}"
        elif tuple(said[step]["ids"]) != text.ids:
            detail = first_id(text, said[step]["ids"])
        result = result.compared(Difference(None, step, "token id", detail))
    return result


def first_id(text: Text, ids: list[int]) -> str:
    """Name the first id that differs."""
    pairs = zip(text.ids, ids, strict=False)
    shorter = min(len(text.ids), len(ids))
    place = next((i for i, (a, b) in enumerate(pairs) if a != b), shorter)
    theirs, ours = (each[place] if place < len(each) else "no id" for each in (text.ids, ids))
    return f"id {place} of {shown(text)} is {ours} in Swift and {theirs} in Python"


def shown(text: Text) -> str:
    """Return the beginning of a text in quotes."""
    kind = "the message " if text.message else ""
    return f"{kind}{text.text[:40]!r}"


def compare_case(
    request: Request,
    case: TokenCase,
    said: Mapping[str, Any] | None,
    ours: Mapping[str, mx.array],
    expected: Mapping[str, mx.array],
) -> CaseResult:
    """Compare the caches made, and of every step the token and the logits."""
    result = empty(case.name, request, len(case.tokens), tolerance(request.dtype, case.kv))
    if said is None:
        return result.compared(Difference(None, 0, "missing", "Swift gave no answer for it"))
    if said.get("error"):
        step, detail = len(said["tokens"]), f"Swift says: {said['error']}"
        return result.compared(Difference(None, step, "error", detail))
    evicting, detail = tuple(said["evicting"]), ""
    if evicting != case.evicting:
        detail = (
            f"{sum(evicting)} of {len(evicting)} caches evict in Swift, "
            f"{sum(case.evicting)} of {len(case.evicting)} in Python"
        )
    result = result.compared(Difference(None, 0, "caches", detail))
    for step, token in enumerate(case.tokens):
        name = f"{case.name}.{step}"
        if step >= len(said["tokens"]) or name not in ours:
            missing = Difference(None, step, "missing", "Swift made no token")
            return result.compared(missing)
        result = compare_step(
            result, step, (said["tokens"][step], token), ours[name], expected[name]
        )
    said_of_rows = other_rows(case, ours, expected)
    if said_of_rows:
        result = result.tie(None, len(case.tokens) - 1, said_of_rows, "kept")
    return result


def other_rows(
    case: TokenCase, ours: Mapping[str, mx.array], expected: Mapping[str, mx.array]
) -> str:
    """Say in which layers other rows are kept at last; that alone is no difference."""
    said = []
    for layer, evicts in enumerate(case.evicting):
        name = f"{case.name}.kept.{layer}"
        if not evicts or name not in ours:
            continue
        mine, its = mx.sort(ours[name]), mx.sort(expected[name])
        if not mx.array_equal(mine, its):
            said.append(f"layer {layer}, {first_head(mine, its, 'Python')}")
    if not said:
        return ""
    first = said[0] if len(said[0]) <= SHOWN else f"{said[0][:SHOWN]}..."
    return f"other rows are kept at last in {len(said)} layers: {first}"


def compare_step(
    result: CaseResult,
    step: int,
    tokens: tuple[int, int],
    logits: mx.array,
    expected: mx.array,
) -> CaseResult:
    """Compare one step. tokens: Swift's and Python's."""
    mine, its = (each.reshape(-1).astype(mx.float32) for each in (logits, expected))
    if mine.size != its.size:
        detail = f"Swift has {mine.size} logits, Python {its.size}"
        return result.compared(Difference(None, step, "logits", detail))
    scale = max(1.0, float(mx.abs(its).max()))
    size = largest(mine / scale, its / scale)
    so_far = max(result.largest_output_difference, min(size, LARGEST))
    result = replace(result, largest_output_difference=so_far)
    (ours, theirs), detail = tokens, ""
    if ours != theirs:
        gap = float(its[theirs] - its[ours]) / scale
        detail = (
            f"Swift chose {ours} (logits {mine[ours].item():.6g} there, {its[ours].item():.6g} "
            f"in Python), Python {theirs} ({mine[theirs].item():.6g}, "
            f"{its[theirs].item():.6g})"
        )
        if gap <= result.tolerance:
            said = f"near tie: {detail}; they are {gap:.2g} apart in Python"
            result, detail = result.tie(None, step, said), ""
    result = result.compared(Difference(None, step, "token", detail))
    apart = mx.abs(mine - its)
    worst = int(mx.argmax(mx.where(mx.isnan(apart), float("inf"), apart)))
    detail = (
        f"the logits differ by {size:.2g}, allowed is {result.tolerance:.2g}; most at token "
        f"{worst}: {mine[worst].item():.6g} in Swift, {its[worst].item():.6g} in Python"
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
