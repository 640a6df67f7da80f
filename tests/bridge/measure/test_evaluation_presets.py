"""Presets, each run whole with a tiny random model."""

from __future__ import annotations

import dataclasses
import json
import sys
from functools import cache
from pathlib import Path

import pytest
from msgspec import structs

from h2o_pack.errors import UserError
from h2o_pack.measure.evaluation import show
from h2o_pack.measure.evaluation.loaded import LayerBudgetsSource
from h2o_pack.measure.evaluation.preset import load_preset, names, parse, rows_of
from h2o_pack.measure.evaluation.report import Evaluation
from h2o_pack.measure.evaluation.run import Share
from h2o_pack.measure.evaluation.run import run as evaluate
from h2o_pack.measure.tables import markdown_table
from tests.bridge import schemas
from tests.bridge.measure.evaluating import Quiet, loaded


def tiny(preset, name="random", **changes):
    """A preset's report at sizes of a second, as if it were of another model."""
    report = run(preset, **changes)
    return dataclasses.replace(report, model=dataclasses.replace(report.model, name=name))


@cache
def run(preset, **changes):
    changes = {"samples": 1, "seeds": (1,), "budgets": ("40",), "generate": 2} | changes
    changed = load_preset(preset).changed(lengths=(96,), models=("random",), **changes)
    few = [
        structs.replace(
            each,
            decoys=min(1, each.decoys),
            depths=each.depths[:1],
            ways=each.ways[:1],
        )
        for each in changed.experiments
    ]
    changed = structs.replace(changed, experiments=tuple(few))
    return evaluate(loaded(), changed, Share(), Quiet())


CHAT = ("chat", "storages")  # which need a chat template
OF_TEXT = [name for name in names() if name != "demo" and name not in CHAT]


@pytest.mark.parametrize("preset", OF_TEXT)
def test_a_preset_runs_and_gives_a_report(preset):
    report = tiny(preset)
    schemas.check(Evaluation(reports=(report,)), "eval")
    wanted = load_preset(preset)
    assert [each.id for each in report.experiments] == [e.id for e in wanted.experiments]
    for shown, experiment in zip(report.experiments, wanted.experiments, strict=True):
        for group, asked in zip(shown.groups, experiment.groups, strict=True):
            found = {cell.contender for cell in group.cells}
            assert found == {"full", *asked.contenders}
    assert show.render(report)


def test_the_demo_model_s_preset_runs_all_that_is_asked_of_it():
    report = tiny("demo", budgets=("1/2",))
    found = {
        cell.contender
        for each in report.experiments
        for group in each.groups
        for cell in group.cells
    }
    storages = {f"default/{s}" for s in ("8", "k8v4", "4", "r16h8", "r8h4")}
    policies = {
        "full", "rotating", "sinks_recent", "paper_recent", "paper_balanced",
        "paper_heavy", "default", "peak", "softmax", "softmax_novelty", "abs_logit_novelty",
        "adaptive", "default+pinned", "paper_heavy+pinned",
    }  # fmt: skip
    assert storages | policies <= found
    assert {len(load_preset("demo").seeds)} == {3}


def test_budgets_by_layer_come_from_a_user_s_file(tmp_path):
    path = tmp_path / "budgets.json"
    layers = [
        {"heavy_budget": 6, "recent_budget": 14},
        {"heavy_budget": 16, "recent_budget": 4},
    ]
    path.write_text(json.dumps({"format": 1, "layers": layers}))
    wanted = loaded(by_layer=LayerBudgetsSource(budgets=path))
    from h2o_pack.measure.evaluation.contenders import find_contender

    caches = wanted.factory.caches(find_contender("default_adaptive").with_rows(24))
    assert [cache.config.recent_budget for cache in caches] == [14, 4]


def test_fewer_rows_than_the_prefill_are_refused():
    with pytest.raises(UserError, match="is 24 rows, fewer than the 32 tokens"):
        tiny("tiny", budgets=("1/4",))


def test_shares_and_numbers_are_rows():
    assert [rows_of(b, 1024) for b in ("256", "1/4", "1/3")] == [256, 256, 341]
    for wrong in ("0", "x", "1/0", "-4"):
        with pytest.raises(UserError, match="neither a number of rows nor a share"):
            rows_of(wrong, 1024)


def test_a_title_with_bars_stays_in_its_cell():
    lines = markdown_table(("cache", "rows"), [("|logit| average", "256")])
    assert lines[2] == r"| \|logit\| average | 256 |"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("format = 1", "format = 2"), r"\$\.format"),
        (("batch", "bacth"), "unknown key 'bacth' .*Did you mean \"batch\""),
        (('"sinks_recent"', '"sink_recent"'), 'Did you mean "sinks_recent"'),
        (("seeds = [1, 2, 3]", "seeds = []"), r"\$\.seeds"),
        (('"160"', '"many"'), 'the budget "many"'),
        (('baseline = "default"', 'baseline = "peak"'), "peak is not a contender"),
        (('ask = "one"', 'ask = "two"'), r"\$\.experiment\[0\]\.ask"),
        (("samples = ", "samples = -"), r"\$\.experiment\[0\]\.samples"),
    ],
)
def test_a_preset_with_a_mistake_is_refused_by_its_place(change, said):
    path = Path(sys.modules["h2o_pack.measure.evaluation"].__path__[0]) / "presets/tiny.toml"
    text = path.read_text().replace(*change)
    assert text != path.read_text()
    with pytest.raises(UserError, match=said) as caught:
        parse(text, "mine", "mine.toml")
    assert "mine.toml" in str(caught.value)


def test_unknown_presets_and_experiments_are_refused_with_the_nearest():
    with pytest.raises(UserError, match='Did you mean "demo"'):
        load_preset("demos")
    with pytest.raises(UserError, match='Did you mean "fact"'):
        load_preset("demo").changed(experiments=("facts",))
