"""How replies to random schemas are judged, kept and shown."""

from __future__ import annotations

import json

import pytest
from tokenizers import Tokenizer

from studies.guided.__main__ import answered
from studies.guided.judge import judged
from studies.guided.page import Setting, Start, render
from studies.guided.schemas import random_schemas
from studies.guided.vocabulary import MARKS, write_tokenizer

SETTING = Setting(
    seed=1,
    version="main",
    rows=64,
    max_tokens=160,
    prompt_characters=1000,
    build="built without optimization",
    every=10,
)
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def reply(text: str, **more: object) -> dict[str, object]:
    cost = {"tokens": 4, "first": 0.1, "processor": 0.4}
    return {"text": text, "guided": cost, "evicted": 3, **more}


@pytest.mark.parametrize(
    "text", ['{"a": "1"}', '{"a": 1', "", '{"a": NaN}', "{}"], ids=lambda text: text or "empty"
)
def test_what_is_no_instance_is_a_fault(text):
    assert judged(SCHEMA, reply(text)).fault
    assert not judged(SCHEMA, reply('{"a": 1}')).fault


def test_a_refusal_is_a_fault_whatever_the_text():
    assert judged(SCHEMA, reply('{"a": 1}', error="noRoom")).fault == "noRoom"


def test_replies_that_failed_are_asked_for_again(tmp_path):
    path = tmp_path / "replies.json"
    whole = reply('{"a": 1}')
    path.write_text(json.dumps([whole, reply("", error="noRoom")]))
    assert answered(path) == [whole, None]


def test_the_page_counts_instances_room_and_cost():
    plain = {"tokens": 4, "first": 0.1, "processor": 0.2}
    given = [reply('{"a": 1}', plain=plain), reply('{"a": 2}', room=161), reply("[]")]
    start = Start(tokens=150_000, first=(0.1, 0.3, 0.2), following=(0.002,) * 3)
    page = render(SETTING, [judged(SCHEMA, each) for each in given * 2], start)
    assert "take 200 ms of processor time, the grammar of the next schema 2 ms" in page
    assert "**4 of 6**" in page
    assert (
        "at most 160 tokens (in 2 as many as the schema's refusal names: at most 161)" in page
    )
    assert "more for the schema, its grammar included | 50.00 " in page


def test_the_same_seed_makes_the_same_schemas():
    assert random_schemas(5, 20) == random_schemas(5, 20) != random_schemas(6, 20)


def test_the_tokenizer_made_for_the_first_schema_reads_any_text(tmp_path):
    write_tokenizer(tmp_path, seed=1, tokens=2_000)
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    text = "The caf\u00e9 in \u65e5\u672c\n<|im_end|>"
    encoded = tokenizer.encode(text)
    assert tokenizer.get_vocab_size() == 2_000 + len(MARKS)
    assert tokenizer.decode(encoded.ids, skip_special_tokens=False) == text
    assert len(encoded.ids) < len(text.encode())
