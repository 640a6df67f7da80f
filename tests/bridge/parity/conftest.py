"""Level 3's request, and answers to it."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from h2o_pack.parity import request as requests
from h2o_pack.parity import rounding, tokens
from h2o_pack.parity.request import Request, Step, TokenCase
from h2o_pack.parity.trace import load
from h2o_py import Budgets, H2OConfig, LayerBudget
from h2o_py.prompts import prompt_chunks
from h2o_py.routing import routed
from tests.bridge.trees import resolve

MAX_KV = 32
PINNED = 6
BY_LAYER = Budgets((LayerBudget(8, 8, 20), LayerBudget(20, 20, 44), None, LayerBudget(10, 16)))


@pytest.fixture(autouse=True, scope="module")
def few_draws_and_tokens() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rounding, "DRAWS", 2)
        patch.setattr(requests, "REPLY", 4)
        yield


@pytest.fixture(scope="module")
def token_request(tmp_path_factory) -> Request:
    demo = resolve("demo")
    storages = {"8": 64, "heavy=4,recent=8": 64}
    config, context = H2OConfig(MAX_KV), demo.config.context
    own = TokenCase(requests.OWN, "8", 64, config, BY_LAYER, returns=True)
    folder = tmp_path_factory.mktemp("tokens")
    return requests.ask(demo.folder, {}, config, context, storages, folder, own)


def converse(
    request: Request,
    case: TokenCase,
    before_step: Callable[[int, list[Any]], None] | None = None,
) -> tuple[list[Step], dict[str, mx.array], list[bool]]:
    """Do what Swift's session does; returns the steps, the arrays and which caches evict.

    before_step: called with the number of tokens read after the next token, and the caches.
    """
    model, tokenizer = load(resolve("demo").folder)
    caches = case.pinning(PINNED).make_caches(model)
    arrays: dict[str, mx.array] = {}
    steps: list[Step] = []
    count = 0

    def read(step: Step) -> int:
        nonlocal count
        ids = requests.ids_of(step)
        count += len(ids)
        if before_step is not None and len(ids) == 1:
            before_step(count, caches)
        logits = model(mx.array([ids]), cache=caches)[0, -1]
        mx.eval(logits)
        steps.append(step)
        if len(ids) == 1:
            arrays[f"{case.name}.{count}"] = logits
            for layer, cache in enumerate(caches):
                arrays[f"{case.name}.kept.{layer}.{count}"] = cache.positions
        return int(mx.argmax(logits))

    more = tokenizer.encode(request.turns[1], add_special_tokens=False)
    with routed():
        for ids, cuts in ((list(request.opening), [PINNED]), (more, [])):
            begin = token = 0
            for length in prompt_chunks(0, len(ids), cuts):
                token = read({"read": ids[begin : begin + length]})
                begin += length
            for _ in range(requests.REPLY):
                token = read({"generated": token})
    return steps, arrays, [True] * len(caches)


class Answer:
    """Swift's answer as it should be, to be spoilt."""

    def __init__(self, request: Request, folder: Path) -> None:
        self.request = replace(request, folder=folder)
        self.arrays: dict[str, mx.array] = {}
        self.cases: dict[str, dict[str, Any]] = {}
        for case in request.cases:
            self.add(case, *converse(request, case))

    def add(
        self,
        case: TokenCase,
        steps: list[Step],
        arrays: dict[str, mx.array],
        evicting: list[bool],
    ) -> None:
        """Answer a case."""
        self.arrays |= arrays
        self.cases[case.name] = {
            "name": case.name,
            "steps": steps,
            "straight": list(steps),
            "pinned": [0, PINNED],
            "evicting": evicting,
        }

    def write(self) -> None:
        document = {"format": requests.FORMAT, "cases": list(self.cases.values())}
        (self.request.folder / tokens.ANSWER).write_text(json.dumps(document))
        mx.save_safetensors(str(self.request.folder / tokens.ARRAYS), self.arrays)
