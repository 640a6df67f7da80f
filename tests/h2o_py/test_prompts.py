"""How Python cuts prompts, which is how the sessions of a package cut them."""

import json

import mlx.core as mx
import pytest
from mlx_lm.models.cache import make_prompt_cache

from h2o_pack import assets
from h2o_py import generation, loading, make_h2o_cache
from h2o_py.config import H2OConfig
from h2o_py.prompts import PROMPT_CHUNK, chunk_of, prompt_chunks, remember_chunk
from tests.conftest import DEMO
from tests.h2o_py.small_models import greedy

SWIFT = "swift_templates/Tests/H2OSessionsTests/PromptCutsTests.swift"


def table():
    """Return the rows of the table in the Swift test."""
    lines = (assets.root() / SWIFT).read_text("utf-8").split('"""')[1].strip().splitlines()
    rows = [line.split(":") for line in lines[1:]]
    return [tuple([int(n) for n in part.split()] for part in row) for row in rows]


@pytest.mark.parametrize(("given", "chunks"), table())
def test_each_prompt_of_the_table_has_the_chunks_of_the_table(given, chunks):
    chunk, begin, end, alone, *cuts = given
    assert prompt_chunks(begin, end, cuts, chunk, alone) == chunks


class Recorded:
    """A model that records the number of tokens of each call."""

    def __init__(self, model):
        self.model, self.calls = model, []

    def __call__(self, tokens, **options):
        self.calls.append(tokens.shape[1])
        return self.model(tokens, **options)

    def __getattr__(self, name):
        return getattr(self.model, name)


@pytest.mark.parametrize("tokens", [2, 16, 17, 18, 40])
def test_without_pinned_tokens_the_chunks_are_those_of_mlx_lm(demo, tokens):
    model = Recorded(demo[0])
    greedy(model, [5] * tokens, make_prompt_cache(demo[0]), 1)
    reads = model.calls[: len(prompt_chunks(0, tokens, chunk=16))]
    assert reads == prompt_chunks(0, tokens, chunk=16)


def test_generation_reads_the_pinned_beginning_first_and_the_last_token_alone(demo, routed):
    model, tokenizer = Recorded(demo[0]), demo[1]
    config = H2OConfig(64, recent_budget=8, pinned=((0, 20),))
    options = {"h2o_config": config, "max_tokens": 2, "prefill_step_size": 16}
    seen = []

    def processor(ids, logits):
        seen.append(ids.tolist())
        return logits

    prompt = list(range(5, 105))
    parts = [
        *generation.stream_generate(
            model, tokenizer, prompt, logits_processors=[processor], **options
        )
    ]
    assert model.calls[:8] == [16, 4, 16, 16, 16, 16, 15, 1]
    assert seen[0] == prompt
    caches = make_h2o_cache(demo[0], config)
    for chunk in (16, 4):
        part, prompt = prompt[:chunk], prompt[chunk:]
        demo[0](mx.array([part]), cache=caches)
    assert parts[0].token == greedy(demo[0], prompt, caches, 1, chunk=16)[0]


def test_a_prompt_is_read_in_chunks_of_512_unless_a_package_says_otherwise(demo, tmp_path):
    assert PROMPT_CHUNK == 512
    model, tokenizer = demo
    recorded = Recorded(model)
    prompt = [5] * 530
    [
        *generation.stream_generate(
            recorded, tokenizer, prompt, h2o_config={"max_size": 64}, max_tokens=1
        )
    ]
    assert recorded.calls[:3] == [512, 17, 1]
    for text in ('{"prompt_chunk": 0}', '{"prompt_chunk": "x"}', "[]", "{"):
        (tmp_path / "manifest.json").write_text(text, "utf-8")
        remember_chunk(model, tmp_path)
        assert chunk_of(model) == 512
    (tmp_path / "manifest.json").write_text('{"prompt_chunk": 50}', "utf-8")
    other = Recorded(model)
    remember_chunk(other, tmp_path)
    [
        *generation.stream_generate(
            other, tokenizer, prompt[:120], h2o_config={"max_size": 64}, max_tokens=1
        )
    ]
    assert other.calls[:4] == [50, 50, 19, 1]


def test_a_model_loaded_from_a_package_has_its_chunk(tmp_path):
    for file in DEMO.iterdir():
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / "manifest.json").unlink(missing_ok=True)
    (tmp_path / "manifest.json").write_text(json.dumps({"prompt_chunk": 40}), "utf-8")
    model, _ = loading.load(str(tmp_path))
    assert chunk_of(model) == 40
