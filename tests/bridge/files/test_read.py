"""Files that somebody else may have made: pipes, devices, and more bytes than memory has."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from h2o_pack.errors import ExitCode
from h2o_pack.files import lock
from h2o_pack.files.text import read_file
from tests.bridge.trees import write_model

KINDS = {
    "pipe": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "long": lambda path: (path.touch(), os.truncate(path, 1 << 40)),  # no room on the disk
    "link to itself": lambda path: path.symlink_to(path.name),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_file_or_too_long_is_not_read(tmp_path, kind):
    KINDS[kind](tmp_path / "file")
    with pytest.raises(OSError, match=r"regular|larger than 1 MiB|symbolic"):
        read_file(tmp_path / "file", 1 << 20)


def test_what_a_shell_hands_over_is_read(tmp_path):
    """As `--policy <(h2o-pack policy show tuned)` does."""
    out, into = os.pipe()
    os.write(into, b"text")
    os.close(into)
    assert read_file(Path(f"/dev/fd/{out}")) == b"text"
    os.close(out)


CALLS = {
    "policy.toml": ("plan", "--max-kv", 64, "--policy"),
    "budgets.json": ("plan", "--max-kv", 64, "--context", 256, "--budgets"),
    "devices.toml": ("plan", "--max-kv", 64, "--devices"),
    "losses.json": ("choose", "--device", "iPhone 15", "--losses"),
    "report.json": ("prove", "--import"),
    "config.json": ("plan", "--max-kv", 64),
    "adapter_config.json": ("ios", "--max-kv", 64, "--dry-run", "--adapter"),
    lock.NAME: ("verify",),
}

CODES = {
    "config.json": ExitCode.MODEL,
    "adapter_config.json": ExitCode.MODEL,
    lock.NAME: ExitCode.OUTPUT,
}


@pytest.mark.parametrize("kind", ["device", "long"])
@pytest.mark.parametrize("name", CALLS)
def test_commands_refuse_such_files_with_their_own_code(run, tmp_path, monkeypatch, name, kind):
    monkeypatch.chdir(tmp_path)
    model = write_model(tmp_path / "model")
    command, *options = CALLS[name]
    path = (model if name == "config.json" else tmp_path) / name
    path.unlink(missing_ok=True)
    KINDS[kind](path)
    takes_model = command in ("plan", "choose", "ios")
    given = ["--model", model] if takes_model else []
    last = path.parent if name.startswith(("adapter", "h2o")) else path
    done = run(command, *given, *options, *([] if name == "config.json" else [last]))
    assert done.exit_code == CODES.get(name, ExitCode.USAGE), done.output
