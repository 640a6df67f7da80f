"""A download whose process is stopped, and the next one."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from huggingface_hub import constants

from h2o_pack.bundling.bundle import bundle
from h2o_pack.hub.partial import SUFFIX
from tests.bridge.bundling.sources import remote, until
from tests.bridge.hub.test_download import CDN, FILES, HASH, ID, WEIGHTS, whole
from tests.bridge.trees import sizes
from tests.hub import faults
from tests.interruptible import interruptible


@pytest.fixture
def repository(hub, monkeypatch):
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 500)
    return hub.add(ID, FILES)


PROGRAM = """
import sys
from pathlib import Path
from huggingface_hub import constants
from h2o_pack.bundling.bundle import bundle
from tests.bridge.bundling.sources import File, Model
constants.DOWNLOAD_CHUNK_SIZE = 500
model = Model({id!r}, (File("model.safetensors", {size}, {sha256!r}),), {commit!r})
bundle(model, Path(sys.argv[1]))
"""


@pytest.mark.parametrize("signal", ["INT", "KILL"])
def test_a_stopped_process_leaves_what_arrived_and_the_next_continues(
    hub, repository, tmp_path, signal
):
    commit = repository.refs["main"]
    (tmp_path / "first").mkdir()
    program = PROGRAM.format(id=ID, size=len(WEIGHTS), sha256=HASH, commit=commit)
    hub.fail(CDN, faults.Hold(after=3000), numbers=range(1))
    command = [sys.executable, "-c", program, str(tmp_path / "first")]
    paths = os.pathsep.join(sys.path)
    environment = hub.client.environment(PYTHONPATH=paths)
    with interruptible():
        client = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    assert hub.holding.wait(60)
    until(lambda: sizes(hub.client.cache, SUFFIX) == [3000])
    client.send_signal(2 if signal == "INT" else 9)
    assert client.wait(30) != 0
    hub.go_on.set()
    (tmp_path / "again").mkdir()
    bundle(remote(repository, "model.safetensors"), tmp_path / "again")
    assert whole(tmp_path / "again")
    assert hub.asked("GET", "model.safetensors")[-1].range == "bytes=3000-"
