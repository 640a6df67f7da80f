"""Every Python package that a make target installs is pinned with its hashes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCKS = ("requirements.lock", ".ci/check.lock", ".ci/wheel.lock")
ENTRY = re.compile(r"^(?P<name>[a-z0-9][a-z0-9._-]*)==(?P<version>[^ ]+)(?P<rest>.*)$")
HASH = re.compile(r"^ +--hash=sha256:[0-9a-f]{64}( \\)?$")


def entries(lock: str) -> dict[str, int]:
    """Return the requirements of a lock and how many hashes each has."""
    found: dict[str, int] = {}
    last = ""
    for line in (ROOT / lock).read_text("utf-8").splitlines():
        entry = ENTRY.match(line)
        if entry:
            last = line.removesuffix(" \\")
            found[last] = 0
        elif HASH.match(line):
            found[last] += 1
        else:
            assert line.lstrip().startswith("#"), line
    return found


@pytest.mark.parametrize("lock", LOCKS)
def test_each_requirement_has_hashes(lock):
    found = entries(lock)
    assert found
    assert [name for name, hashes in found.items() if not hashes] == []


def test_the_locks_agree_on_what_both_have():
    runtime, check = (
        {name.split("==")[0]: name.split(";")[0].strip() for name in entries(lock)}
        for lock in LOCKS[:2]
    )
    several = {
        name for name in check if sum(e.startswith(name + "==") for e in entries(LOCKS[1])) > 1
    }
    both = (runtime.keys() & check.keys()) - several
    assert {"mlx", "click", "nanobind"} <= both
    assert {runtime[name] for name in both} == {check[name] for name in both}


def test_make_installs_with_hashes():
    commands = re.findall(
        r"^\t.*\$\(PIP\) (.*)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE
    )
    installs = [each for each in commands if "--requirement" in each]
    assert len(installs) == 2
    assert all("--require-hashes" in each for each in installs)
    assert all("--no-deps" in each for each in commands if "--editable" in each)
