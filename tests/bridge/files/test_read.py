"""Files that somebody else may have made: locks, pipes, devices, and endless ones."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from h2o_pack.errors import ExitCode
from h2o_pack.files import lock
from h2o_pack.files.text import read_file
from tests.bridge.trees import write_model
from tests.messages import refused, says

WITHOUT_VENDOR = lock.Lock(
    h2o_pack="0.1.0",
    package="demo",
    module="Demo",
    spec={},
    models=(lock.LockedModel(model="demo", config={"max_size": 64}),),
    upstream={},
    files={"a": "0" * 64},
)


@pytest.mark.parametrize(
    "vendor",
    [None, lock.Vendored("linux", "1" * 64, (lock.EditedFile("x/y", "2" * 64, "3" * 64),))],
)
def test_a_lock_reads_back_as_it_was_written(tmp_path, vendor):
    original = replace(WITHOUT_VENDOR, vendor=vendor)
    (tmp_path / lock.NAME).write_text(original.to_json())
    assert lock.read(tmp_path) == original


EARLIER = '{"format": 1, "model": "demo"}'
LATER = json.dumps(json.loads(WITHOUT_VENDOR.to_json()) | {"format": 3})


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (None, ExitCode.OUTPUT),
        ("", ExitCode.OUTPUT),
        ("[]", ExitCode.OUTPUT),
        ('{"format": 2}', ExitCode.OUTPUT),
        ('{"format": 2, "vendor": null, "surprise": 1}', ExitCode.OUTPUT),
        ('{"format": 2, "vendor": {"host": "linux"}}', ExitCode.OUTPUT),
        (LATER, ExitCode.OUTPUT),
        (EARLIER, ExitCode.VERSION),
    ],
)
def test_a_lock_that_is_missing_or_cannot_be_used_is_named(tmp_path, text, code):
    if text is not None:
        (tmp_path / lock.NAME).write_text(text)
    says(refused(lock.read, tmp_path, code=code))


@pytest.mark.parametrize("command", ["parity", "update", "vendor", "verify"])
def test_a_command_wants_a_package_of_this_format(run, tmp_path, command):
    assert run(command, tmp_path).exit_code == ExitCode.OUTPUT
    (tmp_path / lock.NAME).write_text(EARLIER)
    result = run(command, tmp_path)
    assert result.exit_code == ExitCode.VERSION
    assert len(result.stderr.splitlines()) == 1


# Pipes, devices and too many bytes


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
    options_of_model = ["--model", model] if takes_model else []
    last = path.parent if name.startswith(("adapter", "h2o")) else path
    result = run(
        command, *options_of_model, *options, *([] if name == "config.json" else [last])
    )
    assert result.exit_code == CODES.get(name, ExitCode.USAGE), result.output
