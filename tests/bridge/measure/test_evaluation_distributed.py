"""Several processes share the work and give the report of one."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from contextlib import suppress

import pytest

from h2o_pack.measure.evaluation.share import Share

WANTED = [
    "--preset", "tiny", "--contenders", "sinks_recent,random,default/8", "--lengths", "80",
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


def evaluate(folder, launcher=()):
    command = [*launcher, sys.executable, "-m", "h2o_py", "eval", *WANTED]
    command += ["--output", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "results.json").read_text()), done


def test_two_processes_give_the_report_of_one(tmp_path):
    alone, _ = evaluate(tmp_path / "one")
    launcher = [sys.executable, "-c", LAUNCH, "-n", "2", "--backend", "ring"]
    launcher += ["-p", str(free_port()), "--", "env"]
    together, done = evaluate(tmp_path / "two", launcher)
    assert together == alone
    assert done.stdout.count("One fact in 320 tokens") == 1


def test_every_unit_is_done_by_one_process():
    units = list("abcdefg")
    shares = [Share(rank, 3).mine(units) for rank in range(3)]
    assert sorted(pair for share in shares for pair in share) == list(enumerate(units))


def test_a_unit_that_nobody_did_is_missed():
    with pytest.raises(ValueError, match=r"units \[1\] were not done"):
        Share().gather({0: "a", 2: "c"}, 3)
