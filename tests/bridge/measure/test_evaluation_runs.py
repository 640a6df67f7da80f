"""Whole evaluations: each preset, by several processes, by the command."""

import json
import os
import shlex
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from msgspec import structs

from h2o_pack.cli import main
from h2o_pack.errors import ExitCode, UserError
from h2o_pack.measure.evaluation import show
from h2o_pack.measure.evaluation.preset import load_preset, names, parse, rows_of
from h2o_pack.measure.evaluation.report import Evaluation
from h2o_pack.measure.evaluation.run import LayerBudgetsSource, Share, run
from h2o_pack.measure.evaluation.tasks import Outcome
from h2o_pack.measure.tables import markdown_table
from tests.bridge import schemas
from tests.bridge.measure.evaluating import Quiet, loaded
from tests.nightly import nightly_except


def small(name, **changes):
    """A preset at sizes of a second, with each contender once in a kind of task."""
    changes = {"samples": 1, "seeds": (1,), "budgets": ("40",), "generate": 2} | changes
    preset = load_preset(name).changed(lengths=(80,), models=("random",), **changes)
    covered = set()
    experiments = []
    for experiment in preset.experiments:
        groups = []
        for group in experiment.groups:
            kind = (experiment.task, experiment.ask, group.equal)
            new = [name for name in group.contenders if (kind, name) not in covered]
            covered |= {(kind, name) for name in new}
            contenders = tuple(n for n in group.contenders if n in new or n == group.baseline)
            groups.append(structs.replace(group, contenders=contenders))
        few = {
            "groups": tuple(groups),
            "decoys": min(1, experiment.decoys),
            "depths": experiment.depths[:1],
            "ways": experiment.ways[:1],
        }
        experiments.append(structs.replace(experiment, **few))
    return structs.replace(preset, experiments=tuple(experiments))


OF_TEXT = [name for name in names() if load_preset(name).experiments[0].task != "chat"]
"""The presets that need no chat template."""


@pytest.mark.parametrize("preset", nightly_except(("tiny",), OF_TEXT))
def test_a_preset_runs_and_gives_a_report(preset):
    small_preset = small(preset, budgets=("1/2",) if preset == "demo" else ("40",))
    report = run(loaded(), small_preset, Share(), Quiet())
    schemas.check(Evaluation(reports=(report,)), "eval")
    assert [result.id for result in report.experiments] == [
        e.id for e in small_preset.experiments
    ]
    for result, experiment in zip(report.experiments, small_preset.experiments, strict=True):
        for group, source in zip(result.groups, experiment.groups, strict=True):
            assert {cell.contender for cell in group.cells} == {
                "full",
                *source.contenders,
            }
    assert show.render(report)


def test_budgets_by_layer_come_from_a_user_s_file(tmp_path):
    path = tmp_path / "budgets.json"
    layers = [
        {"heavy_budget": 6, "recent_budget": 14},
        {"heavy_budget": 16, "recent_budget": 4},
    ]
    path.write_text(json.dumps({"format": 1, "layers": layers}))
    model = loaded(by_layer=LayerBudgetsSource(budgets=path))
    from h2o_pack.measure.evaluation.contenders import find_contender

    caches = model.factory.caches(find_contender("default_adaptive").with_rows(24))
    assert [cache.config.recent_budget for cache in caches] == [14, 4]


def test_fewer_rows_than_the_prefill_are_refused():
    with pytest.raises(UserError, match="is 20 rows, fewer than the 32 tokens"):
        run(loaded(), small("tiny", budgets=("1/4",)), Share(), Quiet())


def test_shares_and_numbers_are_rows():
    assert [rows_of(b, 1024) for b in ("256", "1/4", "1/3")] == [256, 256, 341]
    for budget in ("0", "x", "1/0", "-4"):
        with pytest.raises(UserError, match="neither a number of rows nor a share"):
            rows_of(budget, 1024)


def test_a_title_with_bars_stays_in_its_cell():
    lines = markdown_table(("cache", "rows"), [("|logit| average", "256")])
    assert lines[2] == r"| \|logit\| average | 256 |"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("format = 1", "format = 2"), r"\$\.format"),
        (('"sinks_recent"', '"sink_recent"'), 'Did you mean "sinks_recent"'),
        (('"160"', '"many"'), 'the budget "many"'),
        (('baseline = "default"', 'baseline = "peak"'), "peak is not a contender"),
        (("samples = ", "samples = -"), r"\$\.experiment\[0\]\.samples"),
    ],
)
def test_a_preset_with_a_mistake_is_refused_by_its_place(change, message):
    path = Path(sys.modules["h2o_pack.measure.evaluation"].__path__[0]) / "presets/tiny.toml"
    text = path.read_text().replace(*change)
    assert text != path.read_text()
    with pytest.raises(UserError, match=message) as error:
        parse(text, "mine", "mine.toml")
    assert "mine.toml" in str(error.value)


def test_unknown_presets_and_experiments_are_refused_with_the_nearest():
    with pytest.raises(UserError, match='Did you mean "demo"'):
        load_preset("demos")
    with pytest.raises(UserError, match='Did you mean "fact"'):
        load_preset("demo").changed(experiments=("facts",))


# Several processes


SMALL = [
    "eval", "--preset", "tiny", "--contenders", "default,default/8", "--lengths", "80",
    "--max-kv", "32", "--samples", "1", "--seeds", "1,2",
]  # fmt: skip


def free_port():
    """A port that is free, and so is the next: each process takes one."""
    for _ in range(100):
        with socket.socket() as first, socket.socket() as second, suppress(OSError):
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            second.bind(("127.0.0.1", port + 1))
            return port
    raise AssertionError("no two free ports side by side")


@pytest.mark.nightly("test_every_unit_is_done_by_one_process_and_gathered_in_order")
def test_two_processes_give_the_report_of_one(tmp_path):
    """As `mlx.launch -n 2 -- h2o-pack eval`, which the help of `eval` names."""
    script = tmp_path / "h2o-pack"  # as pip would install it
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m h2o_pack "$@"\n')
    script.chmod(0o755)
    code = "from mlx._distributed_utils.launch import main; main()"
    launch = [sys.executable, "-c", code, "-n", "2", "--backend", "ring"]
    launch += ["-p", str(free_port()), "--"]
    documents = []
    for launcher in ([], launch):
        process = subprocess.run(
            [*launcher, "h2o-pack", *SMALL, "--batch", "1", "--no-pictures",
             "--output", str(tmp_path / "eval")],
            env={**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert process.returncode == 0, process.stderr
        assert process.stdout.count("One fact in 320 tokens") == 1
        documents.append(json.loads((tmp_path / "eval/results.json").read_text()))
    assert documents[0] == documents[1]


def test_every_unit_is_done_by_one_process_and_gathered_in_order(monkeypatch):
    units = [[[Outcome({"nll": float(n)})]] for n in range(7)]
    parts = [msgspec.json.encode(Share(rank, 3).mine(units)) for rank in range(3)]
    monkeypatch.setattr(Share, "_exchange", lambda _share, _own: parts)
    assert Share(1, 3).gather(Share(1, 3).mine(units)) == units


# The command


def invoke(*arguments):
    return CliRunner().invoke(main, arguments)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A run's JSON, and its folder."""
    folder = tmp_path_factory.mktemp("eval")
    result = invoke(*SMALL, "--json", "--output", str(folder))
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout), folder


def test_the_folder_has_the_report_that_the_command_prints_and_a_page(written):
    document, folder = written
    assert schemas.check(document, "eval")["format"] == 1
    assert json.loads((folder / "results.json").read_text()) == document["reports"][0]
    assert (folder / "README.md").read_text().startswith("<!-- generated by h2o-pack")


def test_a_rerun_reproduces_and_says_so(written):
    result = invoke(*SMALL, "--compare", str(written[1] / "results.json"))
    assert result.exit_code == 0
    assert "reproduces within the intervals" in result.stdout


def test_what_does_not_reproduce_ends_with_the_code_for_a_difference(written, tmp_path):
    report = json.loads((written[1] / "results.json").read_text())
    cells = report["experiments"][0]["groups"][0]["cells"]
    cells[1]["metrics"]["nll"].update(mean=9.0, low=8.9, high=9.1)
    path = tmp_path / "results.json"
    path.write_text(json.dumps(report))
    result = invoke(*SMALL, "--compare", str(path))
    assert result.exit_code == ExitCode.DIFFERENT
    assert "default: nll was 9 [8.9, 9.1], is" in result.stdout
