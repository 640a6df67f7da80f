"""Several processes share the work and give the report of one."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
from contextlib import suppress

import pytest

from h2o_pack.errors import UserError
from h2o_pack.measure.evaluation.run import Share

WANTED = [
    "--preset", "tiny", "--contenders", "sinks_recent,peak,default/8", "--lengths", "80",
    "--max-kv", "32", "--samples", "2", "--batch", "1", "--seeds", "1,2", "--no-pictures",
]  # fmt: skip
LAUNCH = "from mlx._distributed_utils.launch import main; main()"


def free_port():
    """A port that is free, and so is the next: each process takes one."""
    for _ in range(100):
        with socket.socket() as one, socket.socket() as two, suppress(OSError):
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
            two.bind(("127.0.0.1", port + 1))
            return port
    raise AssertionError("no two free ports side by side")


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A PATH on which h2o-pack is what pip would install."""
    folder = tmp_path_factory.mktemp("bin")
    script = folder / "h2o-pack"
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m h2o_pack "$@"\n')
    script.chmod(0o755)
    return os.pathsep.join([str(folder), os.environ["PATH"]])


@pytest.fixture(scope="module")
def evaluate(path, tmp_path_factory):
    """Runs a command that ends with `eval`; returns its report and its stdout."""

    def run(*command):
        folder = tmp_path_factory.mktemp("eval")
        done = subprocess.run(
            [*command, *WANTED, "--output", str(folder)],
            env={**os.environ, "PATH": path},
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads((folder / "results.json").read_text()), done.stdout

    return run


@pytest.fixture(scope="module")
def alone(evaluate):
    return evaluate("h2o-pack", "eval")[0]


def test_two_processes_give_the_report_of_one(evaluate, alone):
    """As `mlx.launch -n 2 -- h2o-pack eval`, which the help of `eval` names."""
    launch = [sys.executable, "-c", LAUNCH, "-n", "2", "--backend", "ring"]
    together, shown = evaluate(*launch, "-p", str(free_port()), "--", "h2o-pack", "eval")
    assert together == alone
    assert shown.count("One fact in 320 tokens") == 1


def test_every_unit_is_done_by_one_process():
    units = list("abcdefg")
    shares = [Share(rank, 3).mine(units) for rank in range(3)]
    assert sorted(pair for share in shares for pair in share) == list(enumerate(units))


def test_a_unit_that_nobody_did_is_missed():
    with pytest.raises(UserError, match=r"units \[1\] were not done"):
        Share().gather({0: [], 2: []}, 3)
