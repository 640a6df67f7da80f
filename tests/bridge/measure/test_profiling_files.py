"""What a profile reads, shows and writes, and the commands."""

import json

import pytest
from rich.console import Console

from h2o_pack.errors import ExitCode, UserError
from h2o_pack.measure.models import loadable, locate
from h2o_pack.measure.profiling import profile_tables
from h2o_pack.measure.profiling.options import Options
from h2o_pack.measure.profiling.profiler import samples
from h2o_py.budgets import load_budgets
from tests.bridge import schemas
from tests.bridge.measure.evaluating import tokenizer
from tests.bridge.measure.profiles import profiled
from tests.h2o_py.small_models import small_model
from tests.messages import says


@pytest.fixture(scope="module")
def profiling():
    return profiled(small_model("gemma3_text"))


def test_prose_and_source_code_are_read_if_no_file_is_given():
    first, *others = samples(tokenizer(), Options(tokens=256))
    texts = [tokenizer().decode(list(ids)) for ids in (first, *others)]
    assert [len(ids) for ids in (first, *others)] == [256] * 4
    assert any("def " in text for text in texts)
    assert not all("def " in text for text in texts)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"short", r"has \d+ tokens; a sample needs 64"), (b"\xff\xfe\x00", "cannot be read")],
)
def test_a_text_that_does_not_serve_is_refused(tmp_path, content, message):
    path = tmp_path / "text.txt"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        samples(tokenizer(), Options(text=path, tokens=64))
    with pytest.raises(UserError, match="cannot be read"):
        samples(tokenizer(), Options(text=tmp_path / "none.txt"))


def test_tables_say_what_the_profile_has(profiling):
    profile = profiling
    attention, reach, _ = profile_tables.sections(profile)
    assert reach.header[0] == "layer"
    assert reach.header[-1] == f"older than {profile.tokens}"
    assert reach.rows[1][-1] == "0.0%"
    assert (
        reach.rows[1][1] == f"{profile.layers[1].beyond[-1 - 4 * (len(reach.header) - 2)]:.1%}"
    )
    assert [row[0] for row in attention.rows] == ["0 (sliding 24)", "1", "2 (sliding 24)", "3"]
    figures = profile.layers[1].figures
    assert attention.rows[1][1].startswith(f"{figures.entropy:.2f} ±")
    assert attention.rows[1][5] == f"{figures.sparsity:.0%}"
    console = Console(record=True, width=160)
    profile_tables.print_profile(profile, console)
    output = console.export_text()
    assert attention.note[:60] in output
    assert profile.machine.mlx in output


def test_a_folder_gets_the_profile(profiling, tmp_path):
    profile_tables.write(profiling, tmp_path / "new")
    [file] = (tmp_path / "new").iterdir()
    assert file.name == "profile.json"
    schemas.check(json.loads(file.read_text()), "profile")


def test_a_profile_without_attention_is_shown():
    profile = profiled(small_model("mamba2"))
    assert profile.layers == ()
    assert len(profile.skipped) == 4
    assert profile_tables.sections(profile)[-1].title == "Layers without a profile"


# The commands


LITTLE = ("--tokens", 96, "--samples", 1)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("import os, sys\nprint(os.getcwd())\n" * 40)
    return path


def test_a_profile_is_written_and_makes_budgets(run, tmp_path, text):
    folder = tmp_path / "profile"
    flags = ("--text", text, "--tokens", 96, "--samples", 1, "--output", folder)
    result = run("profile", "--model", "demo", *flags, "--json")
    assert result.exit_code == 0, result.output
    document = schemas.check(json.loads(result.stdout), "profile")
    assert json.loads((folder / "profile.json").read_text()) == document
    assert (document["model"], document["family"]) == ("demo", "qwen3")
    assert [layer["kind"] for layer in document["layers"]] == ["full"] * 4
    path = tmp_path / "new/budgets.json"
    budgets_of = ("--max-kv", 200, "--budgets", path)
    result = run("profile", "--profile", folder / "profile.json", *budgets_of, "--json")
    assert result.exit_code == 0, result.output
    budgets = schemas.check(json.loads(result.stdout), "profile")
    written = [layer.to_dict() for layer in load_budgets(path).layers]
    assert written == [
        {name: layer[name] for name in ("heavy_budget", "recent_budget", "max_size")}
        for layer in budgets["layers"]
    ]
    flags = ("--text", text, "--tokens", 96, "--samples", 1)
    again = run("profile", "--model", "demo", *flags, *budgets_of)
    assert "Attention by layer" in again.stdout
    assert [layer.to_dict() for layer in load_budgets(path).layers] == written


def test_names_become_what_mlx_lm_loads(tmp_path):
    assert loadable("DEMO") == "demo"
    assert loadable("qwen3-4b-4bit") == "Qwen3-4B-4bit"
    assert locate("qwen3-4b-4bit") == "mlx-community/Qwen3-4B-4bit"
    assert loadable("some/model") == "some/model"
    assert loadable(str(tmp_path)) == str(tmp_path)


def test_a_folder_that_cannot_be_written_is_an_error(run, tmp_path, text):
    (tmp_path / "file").write_text("")
    output = tmp_path / "file/folder"
    flags = ("--model", "demo", "--text", text, *LITTLE, "--output", output)
    result = run("profile", *flags)
    assert result.exit_code == ExitCode.OUTPUT, result.output
    says(result.output)
