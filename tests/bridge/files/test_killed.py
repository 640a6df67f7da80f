"""kill -9 at random moments of `ios`, `update` and `vendor`: nothing of the user's is lost.

The moments are changes of the disk, chosen with a fixed seed. `KILLS=100 SEED=7` in the
environment chooses more, and others.
"""

from __future__ import annotations

import os
import random
import signal

import pytest

from h2o_pack.cli import main
from h2o_pack.package import build, render, update
from tests.bridge.files.children import changes_of, in_child, stopping
from tests.bridge.repositories import COPIES, FILES, PLACES, edits_tree
from tests.bridge.trees import build_tree, names, tree

KILLS = int(os.environ.get("KILLS", "9"))
SEED = int(os.environ.get("SEED", "20261122"))
COMMANDS = ("ios", "update", "vendor")
SOURCE = "Sources/H2OKit/H2OKVCache.swift"
MINE = (
    *("App/Chat/ChatView.swift", "App/Chat.xcodeproj/project.pbxproj", "App/Mine/New.swift"),
    *("Sources/H2OKit/Mine.swift", "Vendor/mlx-swift/Source/mine.h", "Notes.md", ".git/HEAD"),
)


@pytest.fixture
def place(model, tmp_path, copied_assets, monkeypatch):
    """A folder with a package of the small model, Vendor too."""
    monkeypatch.setenv("H2O_PACK_VENDOR", "1")
    monkeypatch.setattr(build, "try_model", lambda *_arguments: None)  # seconds of mlx
    build_tree(copied_assets, edits_tree(COPIES))
    for name, files in FILES.items():
        build_tree(tmp_path / "upstream" / PLACES.get(name, name), files)
    (tmp_path / "place").mkdir()
    done(command("ios", 0, tmp_path / "place"))
    return tmp_path / "place"


def command(name, number, place):
    """Return what runs a command that changes the package, another way for each number."""
    upstream = ("--upstream", place.parent / "upstream")
    made = ("--model", place.parent / "tiny", "--max-kv", 200 + number)
    options = {
        "ios": (*made, "--output", place / "Demo"),
        "update": (place / "Demo",),
        "vendor": (place / "Demo", "--host", ("apple", "linux")[number % 2]),
    }
    arguments = [str(each) for each in (name, *options[name], *upstream, "--quiet")]

    def run():
        render.__version__ = update.__version__ = f"0.1.{number}"  # a child's own
        code = main(arguments, prog_name="h2o-pack", standalone_mode=False)
        if code:
            raise SystemExit(code)

    return run


def done(work):
    assert in_child(work) == 0


def edit(package, number):
    """Edit what is the user's, and a file that is not; return {path: text} of the former."""
    mine = {path: f"// {path} {number}" for path in MINE}
    build_tree(package, {**mine, SOURCE: f"// changed {number}"})
    return mine


def test_a_kill_at_any_moment_loses_nothing_of_the_users(place):
    chosen = random.Random(SEED)  # noqa: S311 - nothing is secret
    package = place / "Demo"
    events = {}
    for number, name in enumerate(COMMANDS, start=1):
        edit(package, number)
        events[name] = len(changes_of(command(name, number, place), place))
    for number in range(len(COMMANDS) + 1, len(COMMANDS) + 1 + KILLS):
        name = chosen.choice(COMMANDS)
        moment = chosen.randint(1, events[name])
        mine = edit(package, number)
        run = command(name, number, place)
        code = in_child(stopping(run, place, moment, signal.SIGKILL))
        assert code in (-signal.SIGKILL, 0), (name, moment)
        there = tree(package if package.exists() else place / ".Demo.h2o-old")
        for path, text in mine.items():
            if path.startswith("App/"):
                assert there.get(path) == text, (name, moment, path)
        kept = tree(place).values()
        assert {*mine.values(), f"// changed {number}"} <= set(kept), (name, moment)
        done(run)
        after = tree(package)
        assert {path: after.get(path) for path in mine} == mine, (name, moment)
        replaced = [text for path, text in after.items() if SOURCE in path]
        assert f"// changed {number}" in replaced, (name, moment)
        assert names(place) == ["Demo"], (name, moment)
        assert not [each for each in names(package) if each.endswith("h2o-new")], (name, moment)
