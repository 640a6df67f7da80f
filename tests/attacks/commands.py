"""Files and answers of a hub that commands read, changed; each ends by a documented code.

A command is given what somebody else made: a model, a package, an adapter, a project's file, a
report, a device's or an app's files, or a hub that lies. It does its work or says one error, in
bounded time, and leaves nothing half-written.
"""

import atexit
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner

from h2o_pack.cli import main
from h2o_pack.errors import ExitCode
from h2o_pack.models import trial
from tests.attacks import Attack, TooLongError, mutations
from tests.bridge import measurements
from tests.bridge.measure import profiles
from tests.bridge.memory.test_devices import OWN
from tests.bridge.models import test_adapter as adapters
from tests.bridge.models.checkpoints import checkpoint
from tests.bridge.trees import build_tree, write_model
from tests.hub import faults
from tests.hub.fixture import HubClient, use
from tests.hub.repository import Content
from tests.hub.server import HubServer

LONGEST = 180
"""Seconds that a command may take, on a machine that does other things too."""
ROOT = Path(__file__).parents[2]
FACTS = ROOT / "bridge/h2o_pack/facts"
MODEL = "someone/tiny"
CACHE = ("--max-kv", "64")
Call = Callable[[Path], Sequence[object]]
"""The arguments of a command on a file or folder."""

PROJECT = """
[[package]]
model = "model"
max-kv = 64
output = "Made"
vendor = false
pin = ["0:8"]
"""
ROWS = {"heavy_budget": 20, "recent_budget": 30}
BUDGETS = {"format": 1, "layers": [ROWS, {**ROWS, "max_size": 128}]}
MEASURED = {
    **measurements.MEASURED,
    "model": "model",
    "max_kv": 64,
    "tokens": 8,
    "caches": [measurements.run_after(1, 20.0)],
}
RESOLVED = {
    "pins": [
        {
            "identity": "mlx-swift",
            "kind": "remoteSourceControl",
            "location": "https://github.com/ml-explore/mlx-swift",
            "state": {"revision": "0" * 40, "version": "0.31.0"},
        }
    ],
    "version": 3,
}


KNOWN = """
[[model]]
name = "ours"
folder = "model"
source = "here"
"""


class Target:
    """Something that commands read: how it is made, and the calls that read it."""

    def __init__(self, make: Callable[[Path], Path], *calls: Call) -> None:
        self.make = make
        self.calls = calls
        self.made: tuple[Path, Path] | None = None

    def put(self, place: Path) -> Path:
        """Put a copy of it, which is made once, into a folder."""
        if self.made is None:
            folder = Path(tempfile.mkdtemp())
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            self.made = folder, self.make(folder).relative_to(folder)
        folder, path = self.made
        shutil.copytree(folder, place, dirs_exist_ok=True)
        return place / path


def of_model(folder: Path) -> Path:
    """Write a model with every kind of file that is read."""
    write_model(folder / "model")
    more = {
        "generation_config.json": json.dumps(
            {"temperature": 0.7, "top_k": 5, "eos_token_id": 1}
        ),
        "tokenizer_config.json": json.dumps(
            {
                "chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}",
                "eos_token": "a",
            }
        ),
        "special_tokens_map.json": json.dumps({"eos_token": {"content": "a"}}),
        "LICENSE": "free",
        "README.md": "---\nlicense: mit\nbase_model: a/b\n---\n# Tiny\n",
    }
    return build_tree(folder / "model", more)


def of_package(folder: Path) -> Path:
    """Make a package of it."""
    package = folder / "package"
    code = run("ios", "--model", of_model(folder), *CACHE, "--output", package, "--no-vendor")
    assert code == ExitCode.OK
    return package


def of_adapter(folder: Path) -> Path:
    """Write an adapter of the model's last layer."""
    of_model(folder)
    folder_of_adapter = folder / "adapter"
    folder_of_adapter.mkdir()
    tensors = adapters.pair("model.layers.1.self_attn.q_proj", 32, 32)
    (folder_of_adapter / "adapter_config.json").write_text(json.dumps(adapters.CONFIG))
    (folder_of_adapter / "adapters.safetensors").write_bytes(checkpoint(tensors))
    return folder_of_adapter


def of_app(folder: Path) -> Path:
    """Write an app's folder: a project, a manifest that is not run, what it resolved."""
    app = of_package(folder) / "App"
    (app / "Package.swift").write_text("// swift-tools-version: 6.1\n")
    (app / "Package.resolved").write_text(json.dumps(RESOLVED))
    return app


def file(name: str, text: str) -> Callable[[Path], Path]:
    """Return what writes one file, beside the model."""

    def make(folder: Path) -> Path:
        of_model(folder)
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")
        return path

    return make


def with_model(command: str, option: str, *more: str) -> Call:
    """Return the call of a command with the model and a file for one option."""
    return lambda path: (command, "--model", path.parent / "model", option, path, *more)


PLAN = ("--max-kv", "64", "--context", "256")
DRY = ("--dry-run", "--name", "Made")
TARGETS = {
    "model": Target(
        of_model,
        lambda path: ("plan", "--model", path, *CACHE),
        lambda path: ("ios", "--model", path, "--device", "iPhone 15", *DRY),
        lambda path: ("models", path),
        lambda path: ("ios", "--model", path, *CACHE, "--output", path.parent / "Made"),
        lambda path: ("ios", "--model", path, *CACHE, *DRY),
        lambda path: ("profile", "--model", path, "--tokens", "64"),
    ),
    "package": Target(
        of_package,
        lambda path: ("verify", path),
        lambda path: ("verify", path, "--quick", "--strict"),
        lambda path: ("update", path, "--dry-run"),
        lambda path: ("update", path),
        lambda path: ("vendor", path, "--upstream", path / "none"),
        lambda path: ("parity", path, "--level", "op"),
        lambda path: ("ios", "--model", path.parent / "model", *CACHE, "--output", path),
    ),
    "adapter": Target(of_adapter, with_model("ios", "--adapter", *CACHE, *DRY)),
    "app": Target(of_app, lambda path: ("doctor", path)),
    "h2o-pack.toml": Target(file("h2o-pack.toml", PROJECT), lambda path: ("ios", "--dry-run")),
    "budgets.json": Target(
        file("budgets.json", json.dumps(BUDGETS)), with_model("plan", "--budgets", *PLAN)
    ),
    "devices.toml": Target(file("devices.toml", OWN), with_model("plan", "--devices", *PLAN)),
    "losses.json": Target(
        file("losses.json", (FACTS / "losses.json").read_text("utf-8")),
        with_model("ios", "--losses", "--device", "iPhone 15", *DRY),
    ),
    "profile.json": Target(
        file("profile.json", profiles.made_up()),
        lambda path: (
            *("profile", "--profile", path, "--max-kv", "64"),
            *("--budgets", path.parent / "made.json"),
        ),
    ),
    "measured.json": Target(
        file("measured.json", json.dumps(MEASURED)),
        with_model("plan", "--measured", *PLAN, "--device", "iPhone16,1"),
    ),
    "models.toml": Target(file("h2o-pack/models.toml", KNOWN), lambda _path: ("models",)),
}
WEIGHTS = {"model": 8, "package": 8, "adapter": 2, "app": 2}
"""Most of what somebody else makes is a model or a package; 1 for everything else."""


@contextmanager
def limited() -> Iterator[None]:
    """End what takes too long as a finding."""

    def late(*_: object) -> None:
        raise TooLongError

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(LONGEST)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def run(*arguments: object) -> int:
    """Run a command in this process; AssertionError unless it ends as documented."""
    words = [str(argument) for argument in arguments]
    with limited():
        result = CliRunner().invoke(main, words)
    what = f"{words}: exit {result.exit_code}\n{result.output[-3000:]}"
    documented = {*ExitCode} - {ExitCode.INTERNAL, ExitCode.INTERRUPTED, ExitCode.UNREAD}
    assert result.exit_code in documented, what
    assert result.exit_code in (ExitCode.OK, ExitCode.DIFFERENT) or "rror: " in result.output, (
        what
    )
    assert "\x1b" not in result.output, what
    return result.exit_code


def change_command(random: Random, folder: Path) -> None:
    """One command on something of which one or two files were changed."""
    place = Path(tempfile.mkdtemp(dir=folder))
    weights = [WEIGHTS.get(name, 1) for name in TARGETS]
    [target] = random.choices([*TARGETS.values()], weights)
    here, outside_process = Path.cwd(), trial.worker.start()
    try:
        path = target.put(place)
        os.chdir(place)
        outside = place / "outside"
        outside.mkdir()
        if path.is_dir() and random.random() < 0.15:
            link_folder(random, path, outside)
        for _ in range(random.choice([1, 1, 2])):
            change_file(random, path)
        shutil.rmtree(outside)  # a link that was just made may lead the next change there
        outside.mkdir()
        (outside / "file").write_text("mine")
        before = listed(place)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("H2O_PACK_CACHE", str(place / "cache"))
            patch.setenv("XDG_CONFIG_HOME", str(place))
            patch.setenv("H2O_PACK_VENDOR", "0")
            code = run(*random.choice(target.calls)(path))
        assert [path.name for path in outside.iterdir()] == ["file"], f"{outside} was changed"
        assert (outside / "file").read_text() == "mine"
        if code not in (ExitCode.OK, ExitCode.DIFFERENT):
            leftovers = {
                name for name in listed(place) - before if not name.startswith("cache")
            }
            assert not leftovers, f"an error left {sorted(leftovers)[:5]}"
    finally:
        os.chdir(here)
        shutil.rmtree(place, ignore_errors=True)
        if trial.worker.start() is not outside_process:
            trial.worker.stop()  # its current folder may be the one that is gone


def change_hub(random: Random, folder: Path) -> None:
    """One command on a model of a hub whose answers were changed."""
    place = Path(tempfile.mkdtemp(dir=folder))
    server = HubServer()
    try:
        model = of_model(place)
        server.client = HubClient(server, place / "huggingface", [])
        server.add(MODEL, {path.name: path.read_bytes() for path in model.iterdir()})
        shutil.rmtree(model)
        with pytest.MonkeyPatch.context() as patch:
            use(server.client, patch)
            patch.setattr("h2o_pack.hub.client.time.sleep", lambda _seconds: None)
            patch.setenv("H2O_PACK_VENDOR", "0")
            for _ in range(random.choice([1, 1, 2])):
                pattern = random.choice([f"/api/models/{MODEL}*", *PATTERNS])
                server.fail(pattern, effect(random, server, pattern), **when(random))
            output = ("--output", place / "Made")
            command = random.choice([("plan",), ("models",), ("ios", *output)])
            name = (MODEL,) if command == ("models",) else ("--model", MODEL, *CACHE)
            code = run(*command, *name)
        own = ("huggingface", "Made") if code == 0 else ("huggingface",)
        leftovers = {name for name in listed(place) if not name.startswith(own)}
        assert not leftovers, f"{sorted(leftovers)[:5]} is there"
    finally:
        server.close()
        shutil.rmtree(place, ignore_errors=True)


PATTERNS = ("*/config.json", "*/model.safetensors", "*/tokenizer.json", "*/README.md", "*")
HEADERS = (
    *("ETag", "X-Linked-Etag", "X-Linked-Size", "X-Repo-Commit", "Content-Range", "Location"),
    *("Content-Length", "Retry-After", "Content-Encoding", "Link", "X-Error-Message"),
)
VALUES = (
    *("", "x", "-1", "0", "9" * 5000, "../../../evil", "/etc/passwd", '"' + "a" * 40 + '"'),
    *(
        "bytes 0-1/2",
        "gzip",
        "file:///etc/passwd",
        "http://127.0.0.1:9/x",
        "\x07",
        "a" * 60_000,
    ),
)


def when(random: Random) -> dict[str, Any]:
    """To which of the requests something happens: all, or the first ones."""
    return random.choice([{}, {}, {"numbers": range(random.choice([1, 2, 3]))}])


def effect(random: Random, server: HubServer, pattern: str) -> faults.Effect:
    """What a hub does in place of answering."""
    kind = random.randrange(6)
    if kind == 0:
        return faults.Instead(headers={random.choice(HEADERS): random.choice(VALUES)})
    if kind == 1:
        status = random.choice([200, 204, 206, 301, 401, 403, 404, 416, 418, 429, 500, 503])
        return faults.Status(
            status, {"Retry-After": random.choice(["0", "-5", "x", "9" * 5000])}
        )
    if kind == 2:
        return random.choice([faults.Truncate(random.choice([0, 1, 9])), faults.Drop(3)])
    if kind == 3:
        return random.choice([faults.IgnoreRange(), faults.ShiftRange(random.choice([-1, 4]))])
    if pattern.startswith("/api"):
        answer = {
            "id": MODEL,
            "sha": "0" * 40,
            "private": False,
            "gated": False,
            "tags": [],
            "siblings": [{"rfilename": "config.json", "size": 5, "blobId": "0" * 40}],
        }
        return faults.Instead(Content(mutations.document(random, answer).encode()))
    return faults.Instead(Content(random.choice(WHOLE)))


def listed(folder: Path) -> set[str]:
    """Return all that lies below a folder, links not followed."""
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


WHOLE = (
    *(b"", b"null", b"[]", b"{}", b"{", b"\xff\xfe", b"\x00" * 9, b"\xef\xbb\xbf{}", b"NaN"),
    *(b"[" * 200_000, b'{"a":' * 50_000, b"9" * 10_000, b'"\\ud800"', b'{"a": 1, "a": 2}'),
    *((1 << 63).to_bytes(8, "little") + b"{}", (100 << 20).to_bytes(8, "little") + b"{}"),
)


SPARSE = 1 << 40


def change_file(random: Random, path: Path) -> None:
    """Change one file of a folder, or the file."""
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    files = [file for file in files if file.stat().st_size < SPARSE]  # the next change reads it
    json_files = [file for file in files if file.suffix in (".json", ".safetensors")]
    if not files:
        return
    target = random.choice(json_files if json_files and random.random() < 0.7 else files)
    kind = random.randrange(10)
    if kind < 5:
        change_content(random, target)
    elif kind < 7:
        target.write_bytes(random.choice(WHOLE))
    else:
        replace(random, target, whole=path.is_file())


def change_content(random: Random, path: Path) -> None:
    """Change some of what a file says."""
    data = path.read_bytes()
    if path.suffix == ".toml" and random.random() < 0.7:
        lines = data.decode("utf-8", "replace").splitlines() or [""]
        at = random.randrange(len(lines))
        key = lines[at].partition("=")[0] if "=" in lines[at] else "key"
        value = random.choice(SETTINGS)
        lines[at] = random.choice([f"{key} = {value}", f"{lines[at]}\n{lines[at]}", "[[x]]"])
        path.write_text("\n".join(lines), "utf-8")
        return
    length = int.from_bytes(data[:8], "little") if path.suffix == ".safetensors" else 0
    begin, end = (8, 8 + length) if length else (0, len(data))
    try:
        head = mutations.document(random, json.loads(data[begin:end])).encode()
    except (ValueError, RecursionError):  # no JSON, or no more
        path.write_bytes(mutations.data(random, data))
        return
    path.write_bytes((len(head).to_bytes(8, "little") if length else b"") + head + data[end:])


SETTINGS = ("nan", "inf", "-1", "9" * 30, '""', "[]", "{}", "1979-05-27", "true", '"../../x"')


def link_folder(random: Random, path: Path, outside: Path) -> None:
    """Put a link to elsewhere in the place of a folder, or beside what is there."""
    folders = sorted(folder for folder in path.rglob("*") if folder.is_dir())
    new = path / random.choice(["Replaced", "App.new", "Vendor", ".parity", ".build", "added"])
    place = random.choice([*folders, new])
    if place.is_dir():
        shutil.rmtree(place)
    place.symlink_to(outside, target_is_directory=True)


def replace(random: Random, path: Path, *, whole: bool) -> None:
    """Put something else than a file in its place, or take it away.

    whole: whether it is all that the command reads. Of folders long files are hashed.
    """
    path.unlink()
    kind = random.randrange(8)
    if kind == 0:
        os.mkfifo(path)
    elif kind == 1:
        path.symlink_to(path.name)
    elif kind == 2:
        path.symlink_to(random.choice(["/dev/zero", "/dev/null", "/etc/passwd"]))
    elif kind == 3:
        path.symlink_to("nowhere")
    elif kind == 4:
        path.mkdir()
    elif kind == 5:
        with path.open("wb") as sparse:
            sparse.truncate(SPARSE if whole else 1 << 27)
    elif kind == 6:
        path.symlink_to("..")


ATTACKS = (Attack(change_command, 4), Attack(change_hub, 1))
