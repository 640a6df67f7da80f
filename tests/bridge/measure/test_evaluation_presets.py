"""Presets, each run whole with a tiny random model, and the paper's tables."""

from __future__ import annotations

import dataclasses
import json
import sys
from functools import cache
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from h2o_pack.errors import UserError
from h2o_pack.measure.evaluation import page, paper, tulu
from h2o_pack.measure.evaluation.evaluate import measure
from h2o_pack.measure.evaluation.loaded import LayerBudgetsSource
from h2o_pack.measure.evaluation.preset import PresetChanges, load_preset, names, parse, rows_of
from h2o_pack.measure.evaluation.results import Evaluation, Report
from h2o_pack.measure.evaluation.share import Share
from h2o_pack.measure.tables import markdown_table
from tests.bridge import schemas
from tests.bridge.measure.evaluating import Quiet, loaded

PAPER = [name for name in names() if name.startswith("paper")]


def tiny(preset, name="random", **changes):
    """A preset's report at sizes of a second, as if it were of another model."""
    report = run(preset, **changes)
    return dataclasses.replace(report, model=dataclasses.replace(report.model, name=name))


@cache
def run(preset, **changes):
    changes = {"samples": 1, "seeds": (1,), "budgets": ("40",), "generate": 2} | changes
    changed = load_preset(preset).changed(
        PresetChanges(lengths=(96,), models=("random",), **changes)
    )
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
    return measure(loaded(), changed, Share(), Quiet())


@pytest.mark.parametrize("preset", [name for name in names() if name != "demo"])
def test_a_preset_runs_and_gives_a_report(preset):
    report = tiny(preset)
    schemas.check(Evaluation(reports=(report,)), "eval")
    wanted = load_preset(preset)
    assert [each.id for each in report.experiments] == [e.id for e in wanted.experiments]
    for shown, experiment in zip(report.experiments, wanted.experiments, strict=True):
        for group, asked in zip(shown.groups, experiment.groups, strict=True):
            found = {cell.contender for cell in group.cells}
            assert found == {"full", *asked.contenders}
    assert page.render(report)


def test_the_demo_model_s_preset_runs_all_that_is_asked_of_it():
    report = tiny("demo", budgets=("1/2",))
    found = {
        cell.contender
        for each in report.experiments
        for group in each.groups
        for cell in group.cells
    }
    storages = {f"default/{s}" for s in ("8", "k8v4", "4", "r16h8", "r8h4", "r8h16", "r4h8")}
    policies = {
        "full", "rotating", "random", "sinks_recent", "paper_recent", "paper_balanced",
        "paper_heavy", "default", "peak", "softmax", "softmax_novelty", "abs_logit_novelty",
        "adaptive", "default+pinned", "paper_heavy+pinned",
    }  # fmt: skip
    assert storages | policies <= found
    assert {len(load_preset("demo").seeds)} == {3}


@pytest.mark.parametrize("preset", PAPER)
def test_a_preset_of_the_paper_shows_its_tables_beside_ours(preset):
    wanted = load_preset(preset)
    numbers = {n for each in wanted.experiments for n in each.paper}
    by_number = {table.number: table for table in paper.tables()}
    shown = set()
    for number in numbers:
        table = by_number[number]
        first = table.rows[0][0]
        rows = first if table.by == "max_kv" else (table.max_kv or 256)
        tokens = first if table.by == "tokens" else (table.tokens or 48)
        model = first if table.by == "model" else table.model
        report = as_if(tiny(preset, model), tokens, rows)
        for title, header, lines in paper.beside(report):
            if title.startswith(f"Table {number}:"):
                shown.add(number)
                assert len(header) == 1 + len(table.columns)
                assert any(" / " in c and not c.endswith("-") for c in lines[0][1:])
    assert shown == numbers


def as_if(report, tokens, rows):
    """The report with cells of the paper's sizes."""
    document = msgspec.to_builtins(report)
    for experiment in document["experiments"]:
        for group in experiment["groups"]:
            for cell in group["cells"]:
                cell.update(length=tokens, budget_rows=rows)
    return msgspec.convert(document, Report)


def test_a_cell_shows_the_published_figure_and_ours():
    report = as_if(tiny("paper-models", "Qwen3-8B-4bit"), 512, 256)
    [(title, header, [row])] = paper.beside(report)
    assert title == "Table 3: Perplexity of three models, 512 tokens, max_kv 256"
    assert header[1:3] == ("full cache", "RotatingKVCache, 4 sinks")
    assert row[0] == "Qwen3-8B-4bit"
    full = report.experiments[0].groups[0].cells[0].metrics["nll"].mean
    assert row[1] == f"6.26 / {2.718281828459045**full:.3f}"


def test_another_model_than_the_paper_s_has_no_row_beside_it():
    assert paper.beside(as_if(tiny("paper-models"), 512, 256)) == []


def test_the_packaged_figures_are_the_published_ones():
    values = {
        (table.number, row[0], column): value
        for table in paper.tables()
        for row in table.rows
        for column, value in zip(table.columns, row[1:], strict=True)
    }
    assert len(values) == 104
    assert values[7, 256, "paper_heavy"] == 4.028
    assert values[9, 32768, "paper_heavy@512"] == 25.4
    assert values[12, "Qwen3-8B-4bit", "paper_heavy/8"] == 109.2


def test_the_paper_s_models_and_sizes_are_in_the_presets():
    models = {model for name in PAPER for model in load_preset(name).models}
    assert models == {
        f"mlx-community/Qwen3-{size}" for size in ("4B-4bit", "8B-4bit", "8B-3bit")
    }
    sizes = load_preset("paper-sizes").experiments[0]
    assert sizes.groups[0].budgets == ("128", "256", "512", "1024", "2048")
    lengths = [n for each in load_preset("paper-lengths").experiments for n in each.lengths]
    assert sorted(set(lengths)) == [512, 1024, 2048, 4096, 8192, 16384, 32768]
    assert load_preset("paper-speed").experiments[0].generate == 200


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
        (("batch", "bacth"), "unknown key 'bacth'. Did you mean \"batch\""),
        (('"sabotaged"', '"sabotage"'), 'Did you mean "sabotaged"'),
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
        load_preset("demo").changed(PresetChanges(experiments=("facts",)))


def test_conversations_become_documents_until_there_is_enough(monkeypatch):
    monkeypatch.setattr(tulu, "ENOUGH", 12)
    talk = [[{"role": "user", "content": " hello "}, {"role": "assistant", "content": "there"}]]
    assert tulu.joined(talk * 5) == ("hello\n\nthere",)


def test_the_paper_s_text_says_what_it_needs(monkeypatch):
    monkeypatch.setattr(tulu.importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(UserError, match=r"pip install 'h2o-pack\[data\]'.*--text FILE"):
        tulu.documents()
