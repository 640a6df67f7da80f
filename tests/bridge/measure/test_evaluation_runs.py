"""Whole evaluations: each preset, by several processes, by the command."""

import json
import os
import shlex
import socket
import sys
from contextlib import suppress

import msgspec
import pytest
from click.testing import CliRunner
from msgspec import structs

from h2o_pack.cli import main
from h2o_pack.errors import UserError
from h2o_pack.measure.evaluation import evaluation_tables
from h2o_pack.measure.evaluation import runner as runs
from h2o_pack.measure.evaluation.evaluation_report import Evaluation, losses
from h2o_pack.measure.evaluation.preset import PRESETS, load_preset, rows_of
from h2o_pack.measure.evaluation.reading import PREFILL
from h2o_pack.measure.evaluation.runner import Share, finished_units, run_preset
from h2o_pack.measure.evaluation.tasks import Outcome
from h2o_pack.measure.tables import markdown_table
from tests.bridge import schemas
from tests.bridge.measure.evaluating import Quiet, loaded
from tests.bridge.trees import program
from tests.nightly import nightly_except
from tests.processes import output_of


def small(name="text", **changes):
    """A preset at a size of a second."""
    length = {"text": 48, "chat": 640}[name]
    ways = {"ways": ("asked", "text")} if name == "chat" else {}
    changes = {"samples": 1, "seeds": (1,), "budgets": ("40",), "lengths": (length,)} | changes
    return load_preset(name).changed(**ways, **changes)


@pytest.mark.parametrize("name", nightly_except(["text"], PRESETS))
def test_a_preset_runs_and_gives_a_report(name):
    preset = small(name, budgets=("3/4",))
    if name == "chat":
        few = tuple(structs.replace(e, decoys=1) for e in preset.experiments)
        preset = structs.replace(preset, experiments=few)
    report = run_preset(loaded(chat=name == "chat"), preset, Share(), Quiet())
    schemas.check(Evaluation(reports=(report,)), "eval")
    for result, experiment in zip(report.experiments, preset.experiments, strict=True):
        for group, source in zip(result.groups, experiment.groups, strict=True):
            assert {cell.contender for cell in group.cells} == {"full", *source.contenders}
    assert evaluation_tables.render(report)
    assert (losses(report) is None) == (name == "text")


@pytest.mark.parametrize("name", PRESETS)
def test_quick_reads_two_samples_with_few_caches(name):
    preset = load_preset(name).shortened()
    [experiment] = preset.experiments
    [group] = experiment.groups
    assert (len(preset.seeds), experiment.samples, experiment.lengths) == (2, 1, (512,))
    assert len(group.contenders) == 2
    assert rows_of(group.budgets[0], 512) >= PREFILL


def test_other_lengths_leave_out_the_groups_that_have_their_own():
    chat = load_preset("chat")
    (own,) = {group.lengths for group in chat.experiments[0].groups if group.lengths}
    (changed,) = chat.changed(lengths=(512,)).experiments
    assert (own, changed.lengths) == ((4096,), (512,))
    assert [group.lengths for group in changed.groups] == [()] * 4


def test_losses_are_of_the_length_at_which_most_storages_were_measured():
    preset = small("chat", budgets=("1/1",))
    (experiment,) = preset.experiments
    few = structs.replace(experiment.groups[0], contenders=("full/8", "full/4"))
    one = structs.replace(few, id="long", contenders=("full/8",), lengths=(700,))
    experiment = structs.replace(
        experiment, decoys=1, ways=("asked", "text"), groups=(few, one)
    )
    report = run_preset(
        loaded(chat=True), structs.replace(preset, experiments=(experiment,)), Share(), Quiet()
    )
    groups = report.experiments[0].groups
    assert {cell.length for group in groups for cell in group.cells} == {640, 700}
    assert losses(report).tokens == 640


class StoppedError(Exception):
    """Ends a run as an interruption does."""


def test_an_interrupted_run_goes_on_where_it_stopped(monkeypatch, tmp_path):
    monkeypatch.setenv("H2O_PACK_CACHE", str(tmp_path))
    few = {"batch": 1, "contenders": ("rotating", "default")}
    preset, whole = small(seeds=(1, 2), **few), runs.work
    expected = run_preset(loaded(), preset, Share(), Quiet())
    done = []

    def work(*arguments):
        if len(done) == 1:
            raise StoppedError
        done.append(arguments)
        return whole(*arguments)

    monkeypatch.setattr(runs, "work", work)
    model = loaded()
    with pytest.raises(StoppedError):
        run_preset(model, preset, Share(), Quiet(), finished_units(model, preset, Share()))
    [file] = tmp_path.glob("evaluations/*.jsonl")
    file.write_bytes(file.read_bytes() + b'[[{"metrics"')  # a line that was cut off
    monkeypatch.setattr(runs, "work", lambda *given: (done.append(given), whole(*given))[1])
    again = run_preset(model, preset, Share(), Quiet(), finished_units(model, preset, Share()))
    assert (len(done), again) == (2, expected)
    other = small(seeds=(1, 3), **few)
    assert (
        finished_units(model, preset, Share()).path
        != finished_units(model, other, Share()).path
    )


def test_results_that_cannot_be_written_are_not_measured_again(monkeypatch, tmp_path):
    monkeypatch.setenv("H2O_PACK_CACHE", str(tmp_path / "cache"))
    preset, whole, done = small(contenders=("default",)), runs.work, []
    monkeypatch.setattr(runs, "work", lambda *given: (done.append(given), whole(*given))[1])
    (tmp_path / "taken").write_text("a file")

    def evaluate(output):
        nothing = {"text": None, "layer_budgets": None}
        runs.evaluate(preset, ["demo"], Share(), Quiet(), output=output, **nothing)

    with pytest.raises(UserError):
        evaluate(tmp_path / "taken/results")
    evaluate(tmp_path / "results")
    assert len(done) == 1
    assert (tmp_path / "results/results.json").is_file()
    assert not list(tmp_path.glob("cache/evaluations/*"))


def test_fewer_rows_than_the_prefill_are_refused():
    with pytest.raises(UserError, match="is 24 rows, fewer than the 32 tokens"):
        run_preset(loaded(), small(budgets=("1/2",)), Share(), Quiet())


def test_shares_and_numbers_are_rows():
    assert [rows_of(b, 1024) for b in ("256", "1/4", "1/3")] == [256, 256, 341]
    for budget in ("0", "x", "1/0", "-4"):
        with pytest.raises(UserError, match="neither a number of rows nor a share"):
            rows_of(budget, 1024)


def test_a_title_with_bars_stays_in_its_cell():
    lines = markdown_table(("cache", "rows"), [("|logit| average", "256")])
    assert lines[2] == r"| \|logit\| average | 256 |"


# Several processes


SMALL = [
    "eval", "--model", "demo", "--preset", "text", "--contenders", "default",
    "--lengths", "48", "--max-kv", "32", "--samples", "1", "--seeds", "1,2",
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
    as_installed = f'exec {shlex.quote(sys.executable)} -m h2o_pack "$@"'
    program(tmp_path, "h2o-pack", as_installed)
    code = "from mlx._distributed_utils.launch import main; main()"
    launch = [sys.executable, "-c", code, "-n", "2", "--backend", "ring"]
    launch += ["-p", str(free_port()), "--"]
    settings = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    documents = []
    for launcher in ([], launch):
        command = [*launcher, "h2o-pack", *SMALL, "--batch", 1, "--output", tmp_path / "eval"]
        output = output_of(*command, env=settings, timeout=300)
        assert output.count("with fewer rows") == 1
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
