"""A few attacks of `make fuzz`, on the usual core; and that a finding is one."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests import fuzz
from tests.attacks import __main__ as attacks
from tests.attacks import archives, calls, saved


def test_some_attacks_do_no_harm():
    command = [sys.executable, "-W", "ignore", "-m", "tests.attacks", "--usual", "--seed=1"]
    done = subprocess.run(
        [*command, "--count=250"], cwd=fuzz.ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split()[-1] == "250"


@pytest.mark.parametrize("error", [KeyError, IndexError, RecursionError, AssertionError])
def test_an_error_that_is_not_ours_is_a_finding(error, monkeypatch, capsys):
    def fail(random, folder):
        raise error("found")

    for module in (archives, calls, saved):
        for name in [name for name in vars(module) if name.startswith("change_")]:
            monkeypatch.setattr(module, name, fail)
    assert not attacks.passes(1, Path())
    assert "found" in capsys.readouterr().err
