"""A run stopped at any change that it makes: nothing is broken, and the next run finishes."""

from __future__ import annotations

import os
import resource
import shutil
import signal

import pytest

from h2o_pack.errors import UserError
from h2o_pack.files import lock
from h2o_pack.models.files import from_folder
from h2o_pack.package import build
from h2o_pack.package.build import make_package
from h2o_pack.spec import CacheSpec
from h2o_pack.verify.check import verify
from tests.bridge.files.children import changes_of, in_child, stopping
from tests.bridge.plans import plan_of
from tests.bridge.trees import build_tree, names, tree

MINE = {"Vendor/mlx-swift/a.cpp": "upstream", "Sources/Old/Mine.swift": "mine", "Notes.md": "n"}


@pytest.fixture(autouse=True)
def without_a_step(monkeypatch):
    """Keep mlx out of the parent: what it starts there does not go on in forked children."""
    monkeypatch.setattr(build, "try_model", lambda *_arguments: None)


@pytest.fixture
def work(model, tmp_path):
    """Return (place, earlier plan, later plan): the later one has another module."""
    place = tmp_path / "place"
    place.mkdir()
    first = plan_of(model, CacheSpec(max_kv=512), "Earlier")
    second = plan_of(model, CacheSpec(max_kv=600), "Later")
    make_package(second, tmp_path / "warm up")  # imports, so that children need none
    shutil.rmtree(tmp_path / "warm up")
    return place, first, second


def earlier(place, first):
    """Make the earlier package with things of the user's, once; return its tree."""
    made = place.parent / "earlier"
    if not made.exists():
        output = make_package(first, made / "Demo").folder
        record = lock.Lock(
            **{**vars(lock.read(output)), "vendor": lock.Vendored("apple", "0" * 64, ())}
        )
        (output / lock.NAME).write_text(record.to_json())
        build_tree(output, MINE)
    shutil.rmtree(place)
    shutil.copytree(made, place)
    return tree(place / "Demo")


def delicate(events):
    """Return numbers of changes: some of each kind, all about renames and deletions."""
    numbers = {1, 2, len(events) // 3, len(events) // 2, len(events)}
    for number, event in enumerate(events, start=1):
        if event in ("os.rename", "shutil.rmtree"):
            numbers |= {number, number + 1}
    # The earlier package is deleted last, its files in an order that the disk chooses.
    deleting = (
        len(events) - events[::-1].index("shutil.rmtree") if "shutil.rmtree" in events else 0
    )
    numbers |= {deleting + (len(events) - deleting) * part // 4 for part in (1, 2, 3)}
    return sorted(each for each in numbers if each <= len(events))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_run_breaks_nothing_and_the_next_one_finishes(work, how):
    place, first, second = work
    before = earlier(place, first)
    output = place / "Demo"

    def run():
        make_package(second, output)

    events = changes_of(run, place)
    after = tree(output)
    assert {path: after[path] for path in MINE} == MINE
    assert {"open", "os.mkdir", "os.link", "os.rename", "os.remove"} <= set(events)
    # An interrupt is handled where a kill is not: some of the moments show that.
    for number in delicate(events)[:: 1 if how == signal.SIGKILL else 3]:
        earlier(place, first)
        code = in_child(stopping(run, place, number, how))
        assert code in (-how, 130), number
        if output.exists() and how == signal.SIGINT:
            assert names(place) == ["Demo"], number
        if output.exists():
            found = tree(output)
            whole = {path: text for path, text in found.items() if path not in MINE}
            assert whole in (
                {path: text for path, text in before.items() if path not in MINE},
                {path: text for path, text in after.items() if path not in MINE},
            ), number
        else:
            assert tree(place / ".Demo.h2o-old") == before, number
        assert in_child(run) == 0
        assert tree(output) == after, number
        assert names(place) == ["Demo"], number


def test_a_first_run_that_is_stopped_leaves_no_folder_of_that_name(work):
    place, _first, second = work
    output = place / "deep" / "Demo"

    def run():
        make_package(second, output)

    for number in delicate(changes_of(run, place)):
        shutil.rmtree(place / "deep", ignore_errors=True)
        in_child(stopping(run, place, number, signal.SIGKILL))
        assert not output.exists() or not verify(output).differences, number
        assert in_child(run) == 0
        assert not verify(output).differences
        assert names(place / "deep") == ["Demo"]


def test_a_disk_that_is_full_leaves_the_earlier_package_whole(work, capfd, model):
    place, first, _second = work
    before = earlier(place, first)
    # It is copied, and larger than a file of this process may be.
    tokenizer = model.folder / "tokenizer.json"
    tokenizer.write_bytes(b" " * 300_000)
    larger = from_folder("tiny", model.folder)
    full = plan_of(larger, CacheSpec(max_kv=600), "Later")

    def run():
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
        refused(lambda: make_package(full, place / "Demo"))

    assert in_child(run) == 4
    assert capfd.readouterr().out == (
        f"{place / 'Demo'} cannot be written: File too large. "
        "Free space or give another --output; nothing was changed."
    )
    assert tree(place / "Demo") == before
    assert names(place) == ["Demo"]


def refused(work):
    """Print the UserError of some work and end with its code."""
    try:
        work()
    except UserError as error:
        os.write(1, str(error).encode())
        raise SystemExit(int(error.code)) from error


def test_a_folder_that_may_not_be_written_is_refused(work, capfd):
    place, first, second = work
    before = earlier(place, first)

    def run():
        if os.geteuid() == 0:  # who may write everywhere
            os.chown(place / "Demo", 65534, 65534)
            os.setgid(65534)
            os.setuid(65534)
        refused(lambda: make_package(second, place / "Demo"))

    above = [
        each for each in place.parents if each.name.startswith(("pytest", "popen", "test_"))
    ]
    for folder in above:
        folder.chmod(folder.stat().st_mode | 0o055)
    place.chmod(0o555)
    try:
        assert in_child(run) == 4
    finally:
        place.chmod(0o755)
    assert "cannot be written: Permission denied" in capfd.readouterr().out
    assert tree(place / "Demo") == before
    assert names(place) == ["Demo"]
