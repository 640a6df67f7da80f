"""Files that somebody else may have made: locks, pipes, devices, and endless ones."""

import json
import os
import shutil
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from h2o_pack.errors import ExitCode
from h2o_pack.files import lock
from h2o_py.files import read_file
from tests.attacks import commands
from tests.bridge.trees import NO_FILES
from tests.messages import refused, says
from tests.nightly import nightly_except

WITHOUT_VENDOR = lock.Lock(
    h2o_pack="0.1.0",
    package="demo",
    module="Demo",
    spec={},
    models=(lock.LockedModel(model="demo", config={"max_size": 64}),),
    upstream={},
    files={"a": "0" * 64},
)


EDITED = (lock.EditedFile("x/y", "2" * 64, "3" * 64),)


@pytest.mark.parametrize(
    "vendor",
    [None, lock.Vendored("linux", "1" * 64, EDITED, "4" * 64)],
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


@pytest.mark.parametrize("kind", NO_FILES)
def test_only_files_up_to_a_limit_are_read(tmp_path, kind):
    NO_FILES[kind](tmp_path / "file")
    with pytest.raises(OSError, match=r"regular|larger than 1 MiB|symbolic|directory"):
        read_file(tmp_path / "file", 1 << 20)


def test_a_pipe_that_a_shell_passes_is_read(tmp_path):
    """As `--budgets <(cat budgets.json)` does."""
    out, into = os.pipe()
    os.write(into, b"text")
    os.close(into)
    assert read_file(Path(f"/dev/fd/{out}")) == b"text"
    os.close(out)


IN_FOLDERS = {
    "config.json": ("model", ExitCode.MODEL),
    "adapter_config.json": ("adapter", ExitCode.MODEL),
    lock.NAME: ("package", ExitCode.OUTPUT),
}
FILES = [name for name in commands.TARGETS if "." in name]


@pytest.mark.parametrize("kind", ["device", "long"])
@pytest.mark.parametrize("name", [*IN_FOLDERS, *FILES])
def test_commands_refuse_such_files_with_their_own_code(tmp_path, monkeypatch, name, kind):
    target_name, code = IN_FOLDERS.get(name, (name, ExitCode.USAGE))
    target = commands.TARGETS[target_name]
    path = target.put(tmp_path)
    file = path / name if path.is_dir() else path
    file.unlink()
    NO_FILES[kind](file)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert commands.run(*target.calls[0](path)) == code


def listen(path: Path) -> None:
    """Make a socket; the path of one may have only about a hundred characters."""
    here = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.chdir(here)


READ = {
    "model": (
        *("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"),
        *("generation_config.json", "special_tokens_map.json", "LICENSE", "README.md"),
        *("model.safetensors.index.json", "chat_template.jinja", "chat_template.json"),
    ),
    "adapter": ("adapter_config.json", "adapters.safetensors"),
    "package": (
        *(lock.NAME, "Package.swift", "Package.resolved", "Sources/H2OKit/H2OKVCache.swift"),
        *("Model/manifest.json", "Model/config.json", "Model/tokenizer.json"),
        *("Model/model.safetensors", "App/Chat/ChatView.swift", "Vendor/manifest.json"),
        *("Model/chat_template.jinja", "App/demo.xcodeproj/project.pbxproj", "Vendor"),
    ),
}
NOT_FOR_EVER = 60  # seconds; without a pipe, each command takes a few


PLACES = [
    (name, path, kind)
    for name, paths in READ.items()
    for path in paths
    for kind in ("pipe", "socket")
]
EVERYDAY = [
    ("model", "config.json", "pipe"),
    ("model", "model.safetensors", "socket"),
    ("model", "chat_template.jinja", "pipe"),
    ("adapter", "adapters.safetensors", "pipe"),
    ("package", lock.NAME, "pipe"),
    ("package", "Sources/H2OKit/H2OKVCache.swift", "socket"),
    ("package", "Model/model.safetensors", "pipe"),
    ("package", "Vendor", "pipe"),
]


@pytest.mark.parametrize(("name", "path", "kind"), nightly_except(EVERYDAY, PLACES))
def test_no_command_waits_for_a_pipe_or_a_socket(tmp_path, monkeypatch, name, path, kind):
    monkeypatch.setattr(commands, "LONGEST", NOT_FOR_EVER)
    monkeypatch.setenv("H2O_PACK_VENDOR", "0")
    target = commands.TARGETS[name]
    folder = target.put(tmp_path)
    place = folder / path
    if place.is_dir():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    place.parent.mkdir(exist_ok=True)
    {"pipe": os.mkfifo, "socket": listen}[kind](place)
    calls = {"package": (0, 2, 3)}.get(name, (0,))
    for number in calls:
        commands.run(*target.calls[number](folder))
