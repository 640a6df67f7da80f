"""What a run writes: a package appears whole, and takes nobody's place."""

import ctypes
import errno
import json
import os
import shutil
import tempfile
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from h2o_pack.errors import ExitCode
from h2o_pack.files import digests as clones
from h2o_pack.files import lock, write
from h2o_pack.files.digests import can_clone, clone
from h2o_pack.files.user_files import Move
from h2o_pack.files.write import as_bytes
from h2o_pack.package import build
from h2o_pack.package.build import make_package
from h2o_pack.spec import CacheSpec
from tests.bridge.plans import plan_of, rendered
from tests.bridge.repositories import git
from tests.bridge.trees import build_tree, names, relock, tree
from tests.messages import refused, says


@pytest.fixture
def plan(model):
    return plan_of(model, CacheSpec(max_kv=512))


@pytest.fixture
def other_plan(model):
    return plan_of(model, CacheSpec(max_kv=600))


refusal = partial(refused, make_package, code=ExitCode.OUTPUT)
LOCK = ".Demo.h2o-lock"


def test_a_package_appears_with_the_folders_above_it(plan, tmp_path):
    output = tmp_path / "build" / "deep" / "Demo"
    package = make_package(plan, output)
    assert package.folder == output
    assert set(package.files) | {
        "Model/README.md",
        "Model/config.json",
        "Model/manifest.json",
        "Model/model.safetensors",
        "Model/tokenizer.json",
        "Model/tokenizer_config.json",
    } == set(tree(output))
    assert names(output.parent) == ["Demo"]


def test_an_empty_folder_is_taken(plan, tmp_path):
    (tmp_path / "Demo").mkdir()
    make_package(plan, tmp_path / "Demo")
    assert lock.read(tmp_path / "Demo").models[0].model == "tiny"


def test_the_record_of_a_vendor_folder_stays_with_it(plan, other_plan, tmp_path):
    output = tmp_path / "Demo"
    make_package(plan, output)
    vendored = lock.Vendored("linux", "1" * 64, (), "1" * 64)
    relock(output, vendor=vendored)
    build_tree(output, {"Vendor/mlx-swift/a.cpp": "upstream"})
    make_package(other_plan, output)
    assert lock.read(output).vendor == vendored
    shutil.rmtree(output / "Vendor")
    make_package(plan, output)
    assert lock.read(output).vendor is None


def link_to_nowhere(folder):
    (folder / "Demo").symlink_to(folder / "nowhere")
    return folder / "Demo"


PLACES = {
    "a folder": lambda folder: build_tree(folder / "Photos", {"cat.jpg": "meow"}),
    "a damaged package": lambda folder: build_tree(folder / "Demo", {lock.NAME: "{", "x": "y"}),
    "a file": lambda folder: build_tree(folder, {"Demo": "mine"}) / "Demo",
    "below a file": lambda folder: build_tree(folder, {"build": "mine"}) / "build/Demo",
    "a link": link_to_nowhere,
    "the root": lambda _folder: Path("/"),
}


@pytest.mark.parametrize("place", PLACES)
def test_an_output_that_is_not_a_package_is_refused_and_left_alone(plan, tmp_path, place):
    output = PLACES[place](tmp_path)
    before = names(tmp_path), tree(tmp_path)
    says(refusal(plan, output))
    assert (names(tmp_path), tree(tmp_path)) == before


@pytest.mark.parametrize("fails_at", ["first", "second"])
def test_a_failed_exchange_puts_the_earlier_package_back(
    plan, other_plan, tmp_path, monkeypatch, fails_at
):
    output = tmp_path / "Demo"
    make_package(plan, output)
    build_tree(output, {"Vendor/x": "upstream"})
    before = tree(output)
    rename = Path.rename
    source = "Demo" if fails_at == "first" else ".Demo.h2o-new"

    def failing(self, target):
        if self.name == source:
            raise OSError(errno.ENOSPC, "No space left on device", str(self))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    says(refusal(other_plan, output))
    assert tree(output) == before
    assert names(tmp_path) == ["Demo", "tiny"]


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "x"
    write.replace_file(path, "one")

    def refuse(self, _target):
        raise OSError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(Path, "replace", refuse)
    says(refused(write.replace_file, path, "two", code=ExitCode.OUTPUT))
    assert tree(tmp_path) == {"x": "one"}


def test_generation_needs_no_more_than_the_renderer_gives(plan, tmp_path):
    package = make_package(plan, tmp_path / "Demo")
    contents = {name: (package.folder / name).read_bytes() for name in package.files}
    assert contents == {name: as_bytes(content) for name, content in rendered(plan).items()}


def owned_by_another(monkeypatch, path):
    """Let a file or folder seem to be another user's."""
    for name in ("stat", "lstat"):
        original = getattr(Path, name)

        def status(self, original=original, **options):
            result = original(self, **options)
            if self != path:
                return result
            return SimpleNamespace(st_mode=result.st_mode, st_uid=-1)

        monkeypatch.setattr(Path, name, status)


@pytest.mark.parametrize("name", [".Demo.h2o-new", ".Demo.h2o-old", ".Demo.h2o-done"])
@pytest.mark.parametrize("how", ["a link", "another user's"])
def test_what_somebody_else_put_at_a_name_of_ours_is_not_taken(
    plan, tmp_path, monkeypatch, name, how
):
    evil = build_tree(tmp_path / "theirs", {"Sources/Evil.swift": "evil"})
    if how == "a link":
        (tmp_path / name).symlink_to(evil)
    else:
        owned_by_another(monkeypatch, evil.rename(tmp_path / name))
    before = tree(tmp_path)
    says(refusal(plan, tmp_path / "Demo"))
    assert tree(tmp_path) == before


def test_a_package_of_another_user_is_left_as_it_is(plan, other_plan, tmp_path, monkeypatch):
    package = make_package(plan, tmp_path / "Demo").folder
    build_tree(package, {".build/old": "old"})
    before = tree(tmp_path)
    owned_by_another(monkeypatch, package)
    says(refusal(other_plan, package))
    assert tree(tmp_path) == before


KINDS = {
    "a link": lambda path: path.symlink_to(path.parent),
    "a pipe": os.mkfifo,
    "a file": Path.touch,
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_lock_that_somebody_else_put_there_is_refused(plan, tmp_path, kind):
    KINDS[kind](tmp_path / LOCK)
    says(refusal(plan, tmp_path / "Demo"))
    assert names(tmp_path) == [LOCK, "tiny"]


def test_two_runs_with_other_temporary_folders_do_not_write_one_package_at_once(
    plan, tmp_path, monkeypatch
):
    output = tmp_path / "build/Demo"
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "one"))
    with write.exclusive(output):
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "two"))
        says(refusal(plan, output))
        assert names(output.parent) == [LOCK]
    assert not output.parent.exists()
    make_package(plan, output)
    assert names(output.parent) == ["Demo"]


def test_a_lock_that_a_killed_run_left_is_taken_over_and_git_does_not_list_it(plan, tmp_path):
    git(tmp_path, "init", "--quiet")
    (tmp_path / LOCK).mkdir()
    assert LOCK not in git(tmp_path, "status", "--porcelain", "--ignored")
    make_package(plan, tmp_path / "Demo")
    assert names(tmp_path) == [".git", "Demo", "tiny"]


def test_a_lock_that_goes_away_meanwhile_is_made_again(tmp_path, monkeypatch):
    """The run that held it deletes it after this run has opened it."""
    flock, runs = write.fcntl.flock, []

    def late(descriptor, how):
        if not runs:
            (tmp_path / LOCK).rmdir()
        runs.append(how)
        flock(descriptor, how)

    monkeypatch.setattr(write.fcntl, "flock", late)
    with write.exclusive(tmp_path / "Demo"):
        assert (tmp_path / LOCK).is_dir()
        assert len(runs) == 2


# Links in a package that somebody else made


def claimed(package, path):
    """Let the lock say that h2o-pack wrote a file, with another content."""
    relock(package, files={**lock.read(package).files, path: "0" * 64})


@pytest.mark.parametrize(
    ("link", "path"),
    [
        ("Replaced", "post-commit"),
        ("Replaced", "Sources/H2OKit/Mine.swift"),
        ("Replaced/Sources", "Sources/H2OKit/Mine.swift"),
        ("Replaced/Sources/H2OKit", "Sources/H2OKit/Mine.swift"),
        ("Replaced/Model", "Model/config.json"),
    ],
)
def test_no_file_of_a_package_moves_through_a_link(plan, other_plan, tmp_path, link, path):
    package = make_package(plan, tmp_path / "Demo").folder
    elsewhere = build_tree(tmp_path / "home", {"mine": "mine"})
    build_tree(package, {path: "theirs"})
    claimed(package, path)
    (package / link).parent.mkdir(parents=True, exist_ok=True)
    (package / link).symlink_to(elsewhere)
    before = tree(package)
    says(refusal(other_plan, package))
    assert names(elsewhere) == ["mine"]
    assert tree(package) == before
    assert names(tmp_path) == ["Demo", "home", "tiny"]


def test_a_file_is_written_only_below_real_folders(tmp_path):
    folder, elsewhere = tmp_path / "Demo", tmp_path / "home"
    for place in (folder, elsewhere):
        place.mkdir()
    (folder / "link").symlink_to(elsewhere)
    (folder / "file").touch()
    for path in ("link/x", "link/deep/x", "file/x", "../home/x", str(elsewhere / "x")):
        says(refused(write.write_files, folder, {path: "x"}, code=ExitCode.OUTPUT))
    assert names(elsewhere) == []
    write.write_files(folder, {"new/deep/x": "x"})
    assert (folder / "new/deep/x").read_text() == "x"


@pytest.mark.parametrize("record", [lock.NAME, "Model/manifest.json"])
def test_no_record_deletes_a_file_without_naming_its_content(
    plan, other_plan, tmp_path, record
):
    package = make_package(plan, tmp_path / "Demo").folder
    mine = package / ("Notes.md" if record == lock.NAME else "Model/Notes.md")
    mine.write_text("mine")
    written = (package / record).read_text()
    for digest in ("", "*", "0" * 63, "0" * 64 + "\n", "F" * 64, None, 0):
        document = json.loads(written)
        if record == lock.NAME:
            document["files"]["Notes.md"] = digest
        else:
            document["files"].append({"path": "Notes.md", "size": 4, "sha256": digest})
            document.pop("digest")
        (package / record).write_text(json.dumps(document))
        before = tree(package)
        assert "is damaged" in refusal(other_plan, package), digest
        assert tree(package) == before, digest


def edited(tmp_path, plan):
    """A package with a build of the user's; return it and the build's folder."""
    package = make_package(plan, tmp_path / "Demo").folder
    build_tree(package, {".build/old": "old", ".build/both": "old", "Notes.md": "mine"})
    return package, package / ".build"


def while_moving(monkeypatch, what):
    """Run something right before each thing is moved to the new folder."""
    make = Move.make

    def disturbed(self, previous, output):
        what(previous, output)
        make(self, previous, output)

    monkeypatch.setattr(Move, "make", disturbed)


def test_a_build_that_goes_on_meanwhile_loses_nothing(plan, other_plan, tmp_path, monkeypatch):
    package, build = edited(tmp_path, plan)
    again = {".build/new": "new", ".build/both": "new"}
    while_moving(monkeypatch, lambda _previous, output: build_tree(output, again))
    make_package(other_plan, package)
    assert (build / "old").read_text() == "old"
    assert (build / "new").read_text() == "new"
    assert (build / "both").read_text() == "new"
    assert (package / "Replaced/.build/both").read_text() == "old"
    assert names(tmp_path) == ["Demo", "tiny"]


def test_what_a_build_deletes_meanwhile_is_no_error(plan, other_plan, tmp_path, monkeypatch):
    package, build = edited(tmp_path, plan)
    while_moving(
        monkeypatch, lambda previous, _output: shutil.rmtree(previous / ".build", True)
    )
    make_package(other_plan, package)
    assert not build.exists()
    assert (package / "Notes.md").read_text() == "mine"
    assert names(tmp_path) == ["Demo", "tiny"]


def test_what_cannot_be_moved_is_kept_and_named(plan, other_plan, tmp_path, monkeypatch):
    package, _build = edited(tmp_path, plan)

    def busy(*_arguments):
        raise OSError(errno.EBUSY, "busy")

    with monkeypatch.context() as patched:
        patched.setattr(Move, "make", busy)
        old = tmp_path / ".Demo.h2o-old"
        error = refusal(other_plan, package)
        assert str(old) in error
        says(error)
        assert (old / ".build/old").read_text() == "old"
    make_package(other_plan, package)
    assert (package / ".build/old").read_text() == "old"
    assert names(tmp_path) == ["Demo", "tiny"]


def test_a_file_is_replaced_and_nothing_is_written_through_a_link(tmp_path):
    target = tmp_path / "mine"
    target.write_text("mine")
    record = tmp_path / lock.NAME
    for link in (record, tmp_path / f".{lock.NAME}.h2o-new"):
        link.symlink_to(target)
    write.replace_file(record, "new")
    assert target.read_text() == "mine"
    assert not record.is_symlink()
    assert record.read_text() == "new"
    assert names(tmp_path) == sorted([lock.NAME, "mine"])


def test_a_full_folder_for_temporary_files_is_not_blamed_on_the_output(
    plan, tmp_path, monkeypatch
):
    def full(*_arguments, **_options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(build, "render_files", full)
    assert "Demo cannot be written" in refusal(plan, tmp_path / "Demo")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "nowhere"))
    says(refusal(plan, tmp_path / "Demo"))


# Clones


@pytest.fixture
def original(tmp_path):
    path = tmp_path / "original"
    path.write_text("text")
    return path


def test_a_clone_is_a_file_of_its_own_or_nothing_and_a_try_leaves_nothing(original, tmp_path):
    able = can_clone(tmp_path, tmp_path)
    assert names(tmp_path) == ["original"]
    target = tmp_path / "clone"
    assert clone(original, target) == able
    if able:
        target.write_text("other")
        assert original.read_text() == "text"
    else:
        assert names(tmp_path) == ["original"]


def test_a_file_that_is_there_is_not_replaced(original, tmp_path):
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(FileExistsError):
        clone(original, tmp_path / "mine")
    assert (tmp_path / "mine").read_text() == "mine"


@pytest.mark.parametrize(("result", "cloned"), [(0, True), (-1, False)])
def test_apfs_is_asked_by_clonefile(original, tmp_path, monkeypatch, result, cloned):
    class System:
        @staticmethod
        def clonefile(source, target, flags):
            if result == 0:
                shutil.copyfile(source, target)
            assert isinstance(flags, ctypes.c_uint32)
            return result

    monkeypatch.setattr(clones.sys, "platform", "darwin")
    monkeypatch.setattr(clones.ctypes, "CDLL", lambda _name: System)
    assert clone(original, tmp_path / "clone") == cloned
    assert (tmp_path / "clone").exists() == cloned
