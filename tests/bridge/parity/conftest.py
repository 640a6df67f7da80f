"""Level 3's request, and answers to it."""

import json
from collections.abc import Iterator

import mlx.core as mx
import pytest

from h2o_pack.hub.resolve import resolve
from h2o_pack.parity import request as requests
from h2o_pack.parity import rounding, tokens
from h2o_pack.parity.request import Request
from h2o_py import Budgets, H2OConfig, LayerBudget

MAX_KV = 32
BY_LAYER = Budgets((LayerBudget(8, 8, 20), LayerBudget(20, 20, 44), None, LayerBudget(10, 16)))


@pytest.fixture(autouse=True, scope="module")
def fewer_tokens() -> Iterator[None]:
    """Decode fewer tokens than a user's level 3, with fewer draws of moved weights."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(requests, "DECODED", 24)
        patch.setattr(rounding, "DRAWS", 4)
        yield


@pytest.fixture(scope="module")
def token_request(tmp_path_factory) -> Request:
    demo = resolve("demo")
    folder = tmp_path_factory.mktemp("tokens")
    storages = {"8": 64, "r8h4": 64}
    config, context = H2OConfig(MAX_KV), demo.config.context
    own = requests.TokenCase("kv 8, by layer", "8", 64, config, BY_LAYER)
    return requests.ask(demo.folder, config, context, storages, folder, own)


class Answer:
    """Swift's answer as it should be, to be spoilt."""

    def __init__(self, request: Request) -> None:
        self.folder = request.folder
        self.texts = [{"ids": list(text.ids)} for text in request.texts]
        self.cases = {
            case.name: {
                "name": case.name,
                "tokens": list(case.tokens),
                "evicting": list(case.evicting),
            }
            for case in request.cases
        }
        self.arrays = mx.load(str(request.folder / requests.EXPECTED))
        mx.eval(self.arrays)  # they may be written to the file that they come from

    def write(self) -> None:
        document = {"format": 1, "texts": self.texts, "cases": list(self.cases.values())}
        (self.folder / tokens.ANSWER).write_text(json.dumps(document))
        mx.save_safetensors(str(self.folder / tokens.LOGITS), self.arrays)
