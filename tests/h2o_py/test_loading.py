"""No code of a model runs, whichever command loads it."""

from __future__ import annotations

import json
import os

import mlx_lm.utils
import pytest
from click.testing import CliRunner
from mlx import nn

from h2o_pack.cli import main
from h2o_pack.errors import ExitCode, UserError
from h2o_pack.measure import models
from h2o_py import __main__ as commands
from h2o_py import loading
from h2o_py.errors import H2OModelError
from tests.bridge.trees import pad_endlessly, write_model
from tests.messages import says
from tests.processes import in_time

EVIL = "from pathlib import Path\nPath({!r}).write_text('ran')\n"


@pytest.fixture
def evil(tmp_path):
    """A model that comes with code, which leaves a file when it runs."""
    folder = write_model(tmp_path / "evil", model_file="evil.py")
    (folder / "evil.py").write_text(EVIL.format(str(tmp_path / "ran")))
    yield folder
    assert not (tmp_path / "ran").exists()


def test_a_model_with_code_is_refused_before_mlx_lm_sees_it(evil, monkeypatch):
    monkeypatch.setattr(mlx_lm.utils, "load", None)
    with pytest.raises(H2OModelError) as error:
        loading.load(str(evil))
    assert str(error.value) == (
        f"{evil}/config.json: it names a model_file, which is Python code of the model. "
        "h2o_py runs no code of models: choose another model."
    )
    with pytest.raises(UserError) as user_error:
        models.load(str(evil))
    assert user_error.value.code == ExitCode.MODEL


@pytest.mark.parametrize("command", ["profile", "bench", "eval"])
def test_the_commands_that_measure_refuse_it(evil, command):
    result = CliRunner().invoke(main, [command, "--model", str(evil)])
    assert result.exit_code == ExitCode.MODEL, result.output
    assert "model_file" in result.stderr


@pytest.mark.parametrize(
    "content", ["pipe", b"{" + b" " * (64 << 20), b'{"model_file": "evil.py", "a": "\xff"}']
)
def test_a_config_that_cannot_be_read_is_refused_before_mlx_lm_sees_it(
    content, evil, monkeypatch
):
    """mlx_lm might read it, and find the code that it names."""
    monkeypatch.setattr(mlx_lm.utils, "load", None)
    path = evil / "config.json"
    path.unlink()
    if content == "pipe":
        os.mkfifo(path)
    else:
        path.write_bytes(content)
    with pytest.raises(H2OModelError) as error, in_time():
        loading.load(str(evil))
    assert error.value.code == "unreadable_config"


@pytest.mark.parametrize("fault", ["crash", "pipe"])
def test_a_tokenizer_that_ends_its_process_is_one_error_of_the_command(fault, tmp_path):
    folder = write_model(tmp_path / "tiny")
    if fault == "pipe":
        (folder / "tokenizer.json").unlink()
        os.mkfifo(folder / "tokenizer.json")
    else:
        pad_endlessly(folder)
    with pytest.raises(SystemExit) as error, in_time():
        commands.generate(["--model", str(folder), "--prompt", "x", "--max-kv", "64"])
    says(error.value)


def test_generate_refuses_it(evil):
    arguments = ["--model", str(evil), "--prompt", "x"]
    for options in ([], ["--max-kv", "64"]):
        with pytest.raises(SystemExit, match="names a model_file"):
            commands.generate([*arguments, *options])


@pytest.mark.parametrize("name", ["a.jinja", "manifest.json", "model-1.safetensors"])
def test_generate_waits_for_no_pipe_among_a_models_files(tmp_path, name):
    folder = write_model(tmp_path / "tiny")
    os.mkfifo(folder / name)
    with pytest.raises(SystemExit, match="it is not a regular file"), in_time():
        commands.generate(["--model", str(folder), "--prompt", "x"])


def test_code_of_a_tokenizer_is_not_asked_about(tmp_path, monkeypatch):
    settings = {}

    def load(_folder, **options):
        settings.update(options)
        return nn.Module(), None

    monkeypatch.setattr(mlx_lm.utils, "load", load)
    loading.load(str(write_model(tmp_path / "tiny")), tokenizer_config={"a": 1})
    assert settings == {"tokenizer_config": {"a": 1, "trust_remote_code": False}}


def test_nothing_that_is_code_is_fetched(hub):
    files = {"config.json": json.dumps({"model_type": "x"}), "evil.py": "", "a.jinja": "x"}
    hub.add("a/b", files)
    with pytest.raises(FileNotFoundError):  # it has no weights
        loading.load("a/b")
    assert hub.asked("GET", "config.json")
    assert not hub.asked("GET", "evil.py")


@pytest.mark.parametrize("name", ["nothing", "nobody/nothing", "../x/y/z"])
def test_a_model_that_is_not_there_is_an_error_of_one_line(hub, name):
    with pytest.raises(SystemExit) as error:
        commands.generate(["--model", name, "--prompt", "x", "--max-kv", "64"])
    message = str(error.value)
    problem = f"{name} is not a folder, and cannot be downloaded from the hub: "
    assert message.startswith(f"error: {problem}")
    assert "\n" not in message
