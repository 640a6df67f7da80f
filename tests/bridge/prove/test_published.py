"""The paper's models: measured where they are on the machine, and said where they are not."""

from __future__ import annotations

import pytest

from h2o_pack.errors import ExitCode, UserError
from h2o_pack.prove import paper, published
from h2o_pack.prove.expected import expected_of
from h2o_pack.prove.notes import Notes
from h2o_pack.prove.paper import PaperSpeed
from h2o_pack.prove.report import MEASURED, NOT_RUN, Setting

SETTING = Setting("demo", 64, "dense", 200, 64, "cpu")


@pytest.fixture
def notes():
    return Notes(SETTING)


@pytest.fixture
def of_demo(monkeypatch):
    """A paper that measured the bundled model."""
    found = tuple(
        PaperSpeed("demo", cache, speed, "made up", measured=False)
        for cache, speed in (("kv", 100.0), ("dense", 1.0), ("8bit", 1e6))
    )
    monkeypatch.setattr(paper, "speeds", lambda: found)


def test_a_model_that_is_not_here_is_not_run(notes, monkeypatch):
    monkeypatch.setattr(published, "on_this_machine", lambda _name: None)
    published.prove_published(notes, lambda _text: None)
    assert {check.id: check.why for check in notes.checks} == {
        "published/Qwen3-4B-4bit": published.ABSENT,
        "published/Qwen3-8B-4bit": published.ABSENT,
    }


def test_a_part_of_a_model_in_the_hub_s_cache_is_none(monkeypatch):
    def broken(*_args, **_options):
        raise UserError("a shard is missing", remedy="", code=ExitCode.MODEL)

    monkeypatch.setattr(published, "from_caches", broken)
    assert published.on_this_machine("Qwen3-8B-4bit") is None


def test_a_bundled_model_is_here():
    folder = published.on_this_machine("demo")
    assert folder is not None
    assert (folder / "config.json").is_file()


def test_ratios_are_held_against_the_published_ones(notes, of_demo):
    published.prove_published(notes, lambda _text: None)
    known = {check.id: check for check in notes.checks}
    dense, quantized = (known[f"published/demo/ratio/{each}"] for each in ("dense", "8bit"))
    assert (dense.expected, dense.expected_from) == (0.01, "paper")
    assert dense.verdict == "as expected"
    assert (quantized.expected, quantized.verdict) == (1e4, "differs")
    assert dense.ratio_of == ("published/demo/decode/dense", "published/demo/decode/kv")
    assert known["published/demo/decode/kv"].verdict == MEASURED
    assert "published: 100 on a Mac Studio" in known["published/demo/decode/kv"].how
    for what in ("prefill/rotating", "peak/KVCache", "peak/dense"):
        assert known[f"published/demo/{what}"].verdict == MEASURED


def test_a_model_that_cannot_be_loaded_says_why(notes, of_demo, monkeypatch):
    def fail(*_args):
        raise UserError("it is broken", remedy="Mend it.", code=ExitCode.MODEL)

    monkeypatch.setattr(published, "prove_model", fail)
    published.prove_published(notes, lambda _text: None)
    [check] = notes.checks
    assert (check.verdict, check.why) == (NOT_RUN, "it is broken. Mend it.")


def test_the_facts_are_the_published_ratios():
    ratio = expected_of("published/Qwen3-8B-4bit/ratio/8bit", SETTING)
    assert ratio is not None
    assert ratio.value == pytest.approx(109.2 / 112.4)
    assert expected_of("published/Qwen3-8B-4bit/decode/8bit", SETTING) is None
    assert expected_of("published/Qwen3-8B-4bit", SETTING) is None
    assert expected_of("published/Qwen3-8B-4bit/ratio/kv", SETTING) is None
