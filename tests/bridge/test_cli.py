import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import click
import jsonschema
import pytest
from click.shell_completion import BashComplete, split_arg_string

from docs.docgen.command_line import walk
from h2o_pack import results
from h2o_pack.cli import main
from h2o_pack.cli.terminal import Terminal
from h2o_pack.errors import ExitCode
from h2o_pack.facts import pins
from h2o_pack.parity import parity
from h2o_py._pins import VERSIONS
from tests.bridge import schemas
from tests.bridge.trees import names, tree
from tests.messages import says
from tests.processes import python

HEAVY = {
    "mlx", "msgspec", "mlx_lm", "numpy", "transformers", "huggingface_hub", "jinja2",
    "rich",
}  # fmt: skip


def imported_by(*calls: list[str]) -> set[str]:
    """Run the tool in a new process; return the modules that these calls imported."""
    code = (
        "import contextlib, io, sys\n"
        "from h2o_pack.cli import main\n"
        f"for call in {calls!r}:\n"
        "    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
        "        main(call)\n"
        "print(*sys.modules)\n"
    )
    return set(python("-c", code, check=True).stdout.split())


def test_help_lists_the_commands_by_section_and_the_exit_codes(run):
    text = run("--help").output
    for title, commands in main.sections.items():
        section = text.partition(f"\n{title}:\n")[2].partition("\n\n")[0]
        assert [line.split()[0] for line in section.splitlines()] == list(commands)
    for code in ExitCode:
        assert re.search(rf"^ +{code.value}  \w", text, re.MULTILINE)


CONTEXTS = list(walk(click.Context(main, info_name="h2o-pack")))[1:]
COMMANDS = {
    context.command_path: context.command
    for context in CONTEXTS
    if not isinstance(context.command, click.Group)
}


@pytest.mark.parametrize("path", [context.command_path for context in CONTEXTS])
def test_every_command_shows_an_example_and_takes_the_common_options(run, path):
    text = run(*path.split()[1:], "--help").output
    assert re.search(rf"\n  Example: .*{path}", text), text
    if path in COMMANDS:
        options = {option for param in COMMANDS[path].params for option in param.opts}
        assert {"--json", "--quiet", "-q", "--verbose", "-v", "--debug"} <= options


def test_the_version_is_printed_with_the_pinned_upstream(run):
    lines = run("--version").output.splitlines()
    assert lines[0] == "h2o-pack 0.1.0"
    assert f"  mlx-swift {pins()['mlx-swift'].version} ({pins()['mlx-swift'].commit})" in lines
    assert f"  mlx-lm {VERSIONS['mlx-lm']} (Python)" in lines


@pytest.mark.parametrize(
    ("words", "completions"),
    [
        ("h2o-pack ven", ["vendor"]),
        ("h2o-pack ios --model qwen3-1", ["Qwen3-1.7B-4bit"]),
        ("h2o-pack plan --device 'iphone 15 pro", ["iPhone 15 Pro", "iPhone 15 Pro Max"]),
        ("h2o-pack devices 'iPhone 16e", ["iPhone 16e"]),
    ],
)
def test_completion_knows_commands_models_and_devices(words, completions):
    comp = BashComplete(main, {}, "h2o-pack", "_H2O_PACK_COMPLETE")
    *given, incomplete = split_arg_string(words)[1:]
    found = comp.get_completions(given, incomplete)
    assert [item.value for item in found] == completions


@pytest.mark.parametrize(
    ("arguments", "codes"),
    [
        ("ios --json --model dmo --max-kv 64", [3]),
        ("ios --json --model dmo --max-kv 3", [2, 3]),
        ("ios --json", [2]),
        ("ios --json --model demo --max-kv 64 --wrong", [2]),
        ("--nosuch --json", [2]),
        ("--json devices", [2]),
    ],
)
def test_machines_get_errors_as_json(run, arguments, codes):
    result = run(*arguments.split())
    assert result.exit_code == codes[0]
    document = schemas.check(json.loads(result.stdout), "error")
    assert [error["code"] for error in document["errors"]] == codes


@pytest.mark.parametrize("option", ["-q", "--verbose"])
def test_an_option_before_the_command_is_told_where_it_stands(run, option):
    result = run(option, "devices")
    assert result.exit_code == ExitCode.USAGE
    says(result.stderr)


@pytest.mark.parametrize("command", ["verify", "ios --model demo --max-kv 64 --output"])
def test_a_path_that_is_no_utf8_leaves_json_that_everybody_reads(run, tmp_path, command):
    result = run(*command.split(), tmp_path / "pak\udce4t", "--json")
    assert result.exit_code == ExitCode.OUTPUT
    [error] = schemas.check(json.loads(result.stdout), "error")["errors"]
    says(error["what"])
    assert names(tmp_path) == []


def test_every_command_has_a_schema_and_every_schema_a_command():
    names = {path.split()[1] for path in COMMANDS}
    assert names | {"error"} == set(results.RESULTS)


def test_every_schema_is_one(run):
    for name in sorted(results.RESULTS):
        schema = results.schema(name)
        jsonschema.Draft202012Validator.check_schema(schema)
        choices = [part["$ref"].rpartition("/")[2] for part in schema.get("anyOf", ())]
        for part in [schema["$defs"][choice] for choice in choices] or [schema]:
            assert part["properties"]["format"]["enum"] == [1]
            assert "format" in part["required"]


def test_quiet_prints_nothing_and_verbose_says_what_is_done(ios):
    assert ios("--quiet").output == ""
    assert re.search(r"^ +\d+\.\d\d s  writing demo$", ios("-v").stderr, re.MULTILINE)


def test_help_imports_nothing_heavy():
    calls = [["--help"], *([name, "--help"] for name in main.files)]
    assert HEAVY & imported_by(*calls) == set()


def test_plan_imports_no_arrays_no_hub_and_no_templates():
    call = ["plan", "--model", "demo", "--max-kv", "256", "--json"]
    assert HEAVY & imported_by(call) <= {"msgspec", "rich"}


def test_ios_says_what_it_made_and_what_comes_next(ios, tmp_path):
    result = ios(max_kv=256)
    assert "demo (qwen3, 4 layers, 2 KV heads of 64)" in result.output
    assert "256 tokens per layer: 4 first, 128 heavy, 124 recent" in result.output
    assert result.output.endswith(
        f"next:\n  h2o-pack vendor {tmp_path}/Demo\n"
        f"  open {tmp_path}/Demo/App/demo.xcodeproj\n  h2o-pack parity {tmp_path}/Demo\n"
    )
    assert result.stderr == ""


def notes(result) -> list[str]:
    return [line for line in result.output.splitlines() if line.startswith("note: ")]


def test_a_note_is_one_line_and_said_again_only_if_its_setting_changed(ios, run, tmp_path):
    few = notes(ios(max_kv=64))
    assert len(few) == 2
    assert max(map(len, few)) <= 80
    assert notes(ios("--dry-run", max_kv=64)) == notes(ios(max_kv=64)) == []
    (of_recall,) = notes(ios("--no-recall", max_kv=64))
    assert "facts are often lost after about 512 tokens" in of_recall
    (tmp_path / "Demo/README.md").unlink()
    assert notes(run("update", tmp_path / "Demo")) == []


def test_ios_tells_machines_the_same(ios, tmp_path):
    result = ios(
        *("--name", "My App", "--sink-size", 2, "--heavy-budget", 100, "--recent-budget", 90),
        *("--score", "softmax", "--pin", "0:8", "--pin", "20:30", "--json"),
        max_kv=300,
    )
    document = schemas.check(json.loads(result.stdout), "ios")
    assert (document["name"], document["module"]) == ("My-App", "MyAppModel")
    config = {
        "max_size": 300,
        "sink_size": 2,
        "heavy_budget": 100,
        "recent_budget": 90,
        "score": "softmax",
        "pinned": [[0, 8], [20, 30]],
    }
    assert document["models"][0]["config"].items() >= config.items()
    assert set(document["files"]) < set(tree(tmp_path / "Demo"))


def test_another_mlx_ends_with_6(run, demo_package, monkeypatch):
    monkeypatch.setattr(parity.metadata, "version", lambda _name: "0.99.0")
    result = run("parity", demo_package)
    assert result.exit_code == ExitCode.VERSION
    says(result.stderr)


def test_a_missing_core_ends_with_5(run, demo_package, monkeypatch):
    monkeypatch.setitem(sys.modules, "h2o_py.fast", None)
    result = run("parity", demo_package, "--level", "op")
    assert result.exit_code == ExitCode.TOOL
    says(result.stderr)


def test_a_bundled_model_that_does_not_load_ends_with_3(ios, run, tmp_path):
    ios()
    (tmp_path / "Demo/Model/model.safetensors").unlink()
    result = run("parity", tmp_path / "Demo", "--level", "op")
    assert result.exit_code == ExitCode.MODEL
    assert result.stderr.startswith("error: mlx-lm cannot load the model: FileNotFoundError(")
    assert f"({tmp_path}/Demo/Model). Make the package again.\n" in result.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [(KeyboardInterrupt, ExitCode.INTERRUPTED), (TypeError("a bug"), ExitCode.INTERNAL)],
)
def test_an_interruption_ends_with_130_and_an_error_of_our_own_with_70(
    ios, tmp_path, monkeypatch, error, code
):
    monkeypatch.setattr("h2o_pack.package.build.bundle", Mock(side_effect=error))
    says(ios(code=code).stderr)
    assert names(tmp_path) == []


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("ignored", [False, True])
def test_a_signal_ends_a_command_as_ctrl_c_does_unless_it_is_ignored(
    ios, tmp_path, monkeypatch, how, ignored
):
    def interrupted(*_arguments, **_options):
        signal.raise_signal(how)
        raise ValueError("went on")

    monkeypatch.setattr("h2o_pack.package.build.bundle", interrupted)
    before = signal.signal(how, signal.SIG_IGN if ignored else signal.SIG_DFL)
    try:
        ios(code=ExitCode.INTERNAL if ignored else ExitCode.INTERRUPTED)
        assert signal.getsignal(how) == (signal.SIG_IGN if ignored else signal.SIG_DFL)
    finally:
        signal.signal(how, before)
    assert names(tmp_path) == []


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_output_that_is_not_read_to_its_end_is_no_difference_that_was_found(options):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as unread:
        command = [sys.executable, "-m", "h2o_pack", "devices", *options]
        process = subprocess.run(
            command, stdout=unread, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (process.returncode, process.stderr) == (ExitCode.UNREAD, "")


def test_what_the_system_refuses_is_no_error_of_ours(run, tmp_path):
    place = tmp_path / ("x" * 300)
    result = run("ios", "--model", "demo", "--max-kv", 256, "--output", place)
    assert result.exit_code == ExitCode.OUTPUT
    says(result.stderr)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device")
def test_a_full_device_for_the_output_is_said():
    command = [sys.executable, "-m", "h2o_pack", "devices", "--json"]
    with Path("/dev/full").open("w") as full:
        process = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert process.returncode == ExitCode.OUTPUT
    assert process.stderr.startswith(
        "error: the operating system reports: No space left on device"
    )


def test_budgets_nested_deeper_than_can_be_read_are_refused(ios, tmp_path):
    (tmp_path / "budgets.json").write_text("[" * 100_000)
    says(ios("--budgets", tmp_path / "budgets.json", code=ExitCode.USAGE).stderr)


def test_a_traceback_is_shown_only_when_asked_for(ios):
    options = {"max_kv": 3, "code": ExitCode.USAGE}
    assert "Traceback" not in ios(**options).stderr
    assert "Traceback" in ios("--debug", **options).stderr


def test_progress_is_silent_where_nobody_looks(capsys):
    with Terminal().progress() as say, say.bar("copying", 3) as advance:
        say("working")
        advance(3)
    assert capsys.readouterr().err == ""
