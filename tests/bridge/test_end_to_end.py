"""The commands as a user types them, in processes of their own, against a loopback hub."""

import json
import os
import shutil
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner

from h2o_pack.bundling import manifest
from h2o_pack.cli import main
from h2o_pack.errors import ExitCode
from h2o_pack.files import lock
from h2o_pack.files.write import exclusive
from h2o_pack.hub.download import SUFFIX
from tests.bridge.trees import sizes
from tests.hub import faults, qwen3
from tests.messages import refused
from tests.nightly import nightly_except
from tests.processes import interruptible

MEMORY = 400 << 20  # bytes


@pytest.fixture
def place(hub, tmp_path):
    """Return a folder to work in; what is large is deleted afterwards."""
    (tmp_path / "place").mkdir()
    yield tmp_path / "place"
    for folder in (tmp_path / "place", hub.client.home):
        shutil.rmtree(folder, ignore_errors=True)


PROGRAM = """
import atexit, sys
from pathlib import Path
from h2o_pack.cli import main
from tests.hub.peak import peak
atexit.register(lambda: Path(sys.argv[1]).write_text(str(peak())))
main(sys.argv[2:], prog_name="h2o-pack")
"""


def start(hub, place, command):
    """Start a command line; it writes the peak of its memory beside `place`."""
    # A cache of its own, so that no run knows what another has asked.
    # A server that holds its answer is waited for, however slow this machine is.
    environment = hub.client.environment(
        H2O_PACK_CACHE=str(hub.client.home / "h2o-pack"), HF_HUB_DOWNLOAD_TIMEOUT="600"
    )
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(place.parent / "peak"), *command.split()[1:]],
        cwd=place,
        env=environment | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(hub, place, command):
    """Run a command line; return (exit code, stdout, stderr)."""
    with start(hub, place, command) as started:
        stdout, stderr = started.communicate()
    return started.returncode, stdout, stderr


@pytest.mark.nightly("test_a_stopped_command_is_finished_by_the_next")
def test_a_model_of_the_hub_becomes_a_package_by_the_command_of_the_readme(
    hub, place, tmp_path
):
    files = qwen3.files(tmp_path, layers=8, sha256=qwen3.SHA256_OF_8_LAYERS)
    repository = hub.add(qwen3.ID, files)
    code, out, err = run(hub, place, "h2o-pack ios --model Qwen3-4B-4bit --max-kv 512")
    assert (code, err) == (0, "")
    package = place / "Qwen3-4B-4bit"
    commit = repository.refs["main"]
    [record], bundled = lock.read(package).models, manifest.read(package)
    assert (record.model, record.commit, record.config["max_size"]) == (qwen3.ID, commit, 512)
    assert (bundled.model, bundled.commit) == (qwen3.ID, commit)
    assert [file.path for file in bundled.files] == [
        "README.md",
        "chat_template.jinja",
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    weights = package / "Model/model.safetensors"
    assert weights.stat().st_size == (tmp_path / weights.name).stat().st_size > MEMORY
    sha256 = next(file.sha256 for file in bundled.files if file.path == weights.name)
    assert sha256 == qwen3.SHA256_OF_8_LAYERS
    assert weights.stat().st_nlink == 1  # not the file in the hub's cache
    assert "8 layers" in out
    assert int((tmp_path / "peak").read_text()) < MEMORY
    code, out, _err = run(hub, place, "h2o-pack verify Qwen3-4B-4bit --quick --json")
    assert (code, json.loads(out)["same"]) == (0, True)


def change(package):
    """Begin to change a package as every command does."""
    with exclusive(package):
        pass


@pytest.mark.parametrize("signal", nightly_except([2], [2, 9]))
def test_a_stopped_command_is_finished_by_the_next(hub, place, tmp_path, monkeypatch, signal):
    hub.add(qwen3.ID, qwen3.files(tmp_path, layers=1, vocabulary=1024))
    size = (tmp_path / "model.safetensors").stat().st_size
    partial_size = 30 << 20
    hub.fail("/cdn/*/model.safetensors", faults.Hold(partial_size), method="GET")
    command = "h2o-pack ios --model Qwen3-4B-4bit --max-kv 512 --output Demo"
    with interruptible():
        first = start(hub, place, command)
    with first:
        while max(sizes(hub.client.home, SUFFIX), default=0) < partial_size:
            assert first.poll() is None, first.stderr.read()
            time.sleep(0.05)  # what it waits for is on the disk of another process
        refusal = refused(change, place / "Demo", code=ExitCode.OUTPUT)
        assert "another h2o-pack is working on" in refusal
        first.send_signal(signal)
        assert first.wait(60) == (130 if signal == 2 else -9)
        hub.go_on.set()
    assert not (place / "Demo").exists()
    monkeypatch.chdir(place)
    result = CliRunner().invoke(main, command.split()[1:])
    assert (result.exit_code, result.stderr) == (0, "")
    assert hub.asked("GET", "model.safetensors")[-1].range == f"bytes={partial_size}-"
    assert (place / "Demo/Model/model.safetensors").stat().st_size == size
    assert [path.name for path in place.iterdir()] == ["Demo"]
