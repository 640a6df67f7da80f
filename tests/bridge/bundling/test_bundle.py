"""A model's files copied into a package, and the room and memory that this takes."""

import hashlib
import json
import os
import shutil
import sys
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace

import pytest
from huggingface_hub import constants

from h2o_pack.bundling import bundle as bundling
from h2o_pack.bundling.bundle import RESERVE, Need, bundle, check_space
from h2o_pack.errors import ExitCode, UserError
from h2o_pack.files import digests
from tests.bridge.bundling.sources import Bars, File, Model, local, remote
from tests.bridge.trees import NO_FILES, build_tree, tree
from tests.hub import faults
from tests.messages import refused, says
from tests.processes import output_of

FILES = {"config.json": "{}", "tokenizer.json": "[]", "model.safetensors": "weights"}


@pytest.fixture
def folder(tmp_path):
    return build_tree(tmp_path / "tiny", FILES)


@pytest.fixture
def package(tmp_path):
    (tmp_path / "package").mkdir()
    return tmp_path / "package"


refusal = partial(refused, bundle, code=ExitCode.MODEL)


def checksum(path):
    """Return the line that sha256sum writes of a file in FILES."""
    return f"{hashlib.sha256(FILES[path].encode()).hexdigest()}  {path}\n"


def test_the_model_folder_holds_the_models_files_and_the_manifest_lists_them(folder, package):
    build_tree(folder, {"README.md": "not needed", "adapters/x.safetensors": "not wanted"})
    manifest = bundle(local(folder, *FILES), package)
    assert json.loads(manifest.to_json()) == {
        "format": 1,
        "model": "tiny",
        "commit": "",
        "files": [
            {
                "path": path,
                "size": len(text),
                "sha256": hashlib.sha256(text.encode()).hexdigest(),
            }
            for path, text in FILES.items()
        ],
        "digest": hashlib.sha256("".join(map(checksum, sorted(FILES))).encode()).hexdigest(),
        "prompt_chunk": 512,
        "chat": {
            "template": False,
            "system": True,
            "tools": False,
            "drops_thoughts": False,
            "stops": [],
            "stop_texts": [],
        },
    }
    assert tree(package / "Model") == FILES
    assert manifest.size == 11


def test_nothing_in_a_package_is_a_file_of_the_users_or_of_another_package(folder, tmp_path):
    packages = [tmp_path / "one", tmp_path / "two"]
    for package in packages:
        package.mkdir()
        bundle(local(folder), package)
    for name in FILES:
        assert [(package / "Model" / name).stat().st_nlink for package in packages] == [1, 1]
    (packages[0] / "Model/model.safetensors").write_text("changed")
    assert (folder / "model.safetensors").read_text() == "weights"
    assert (packages[1] / "Model/model.safetensors").read_text() == "weights"


def test_copies_share_blocks_where_the_file_system_can(folder, package, monkeypatch):
    cloned = []

    def share(source, target):
        cloned.append(source.name)
        target.write_bytes(source.read_bytes())
        return True

    monkeypatch.setattr(digests, "clone", share)
    monkeypatch.setattr(bundling, "can_clone", lambda *_folders: True)
    manifest = bundle(local(folder), package)
    assert sorted(cloned) == sorted(FILES)
    assert manifest.files[1].sha256 == hashlib.sha256(b"weights").hexdigest()


@pytest.fixture
def earlier(folder, tmp_path):
    """An earlier package of the same model."""
    (tmp_path / "earlier").mkdir()
    bundle(local(folder), tmp_path / "earlier")
    return tmp_path / "earlier"


WEIGHTS = "Model/model.safetensors"


def test_weights_that_the_earlier_package_has_are_taken_over(folder, package, earlier):
    bundle(local(folder), package, earlier=earlier)
    assert (package / WEIGHTS).samefile(earlier / WEIGHTS)
    assert not (package / "Model/config.json").samefile(earlier / "Model/config.json")


@pytest.mark.parametrize("what", ["other content", "linked elsewhere", "a link", "absent"])
def test_weights_of_the_earlier_package_that_may_not_be_taken_over_are_copied(
    folder, package, earlier, what
):
    weights = earlier / WEIGHTS
    if what == "other content":
        weights.write_text("WEIGHTS")
    elif what == "linked elsewhere":
        os.link(weights, earlier / "mine")
    else:
        weights.unlink()
    if what == "a link":
        weights.symlink_to(folder / "model.safetensors")
    bundle(local(folder), package, earlier=earlier)
    assert (package / WEIGHTS).read_text() == "weights"
    assert (package / WEIGHTS).stat().st_nlink == 1


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_link_out_of_a_models_folder_is_refused(folder, package, tmp_path, name):
    (tmp_path / "secret").write_text("secret!")
    (folder / name).unlink()
    (folder / name).symlink_to("../secret")
    says(refusal(local(folder), package))
    assert not (package / "Model").exists()


def test_a_linked_folder_out_of_a_models_folder_is_refused(folder, package, tmp_path):
    build_tree(tmp_path / "elsewhere", {"x.json": "x"})
    (folder / "sub").symlink_to(tmp_path / "elsewhere")
    says(refusal(local(folder, "sub/x.json"), package))


def test_a_link_inside_a_models_folder_is_followed(folder, package):
    (folder / "vocab.json").symlink_to("config.json")
    bundle(local(folder), package)
    assert (package / "Model/vocab.json").read_text() == "{}"


@pytest.mark.parametrize("kind", ["missing", "pipe", "folder", "link to itself"])
def test_only_regular_files_are_opened(folder, package, kind):
    if kind != "missing":
        NO_FILES[kind](folder / "extra.json")
    message = refusal(Model("x", (File("extra.json", 1),), folder=folder), package)
    assert message.startswith("extra.json ")


def test_a_file_that_changed_since_it_was_listed_is_refused(folder, package):
    model = local(folder)
    (folder / "config.json").write_text("{ }")
    says(refusal(model, package))


def test_all_files_that_changed_are_named(folder, package):
    files = (File("config.json", 2, "0" * 64), File("tokenizer.json", 5))
    with pytest.raises(UserError) as error:
        bundle(Model("x", files, folder=folder), package)
    assert [problem.what[:14] for problem in error.value.errors] == [
        "config.json ha",
        "tokenizer.json",
    ]


def test_progress_tells_every_byte(folder, package):
    say = Bars()
    bundle(local(folder), package, say)
    assert say.bars == {"bundling tiny": (11, 11)}


def test_an_interruption_is_passed_on(folder, package, monkeypatch):
    def interrupt(_amount):
        raise KeyboardInterrupt

    say = Bars()
    monkeypatch.setattr(say, "bar", lambda *_arguments: nullcontext(interrupt))
    with pytest.raises(KeyboardInterrupt):
        bundle(local(folder), package, say)


# Room on disks


@pytest.fixture
def disks(monkeypatch):
    """Make folders lie on disks of other sizes: {part of the path: (disk, bytes free)}."""

    def choose(places):
        def find(folder):
            return next(place for part, place in places.items() if part in str(folder))

        monkeypatch.setattr(bundling, "device", lambda folder: find(folder)[0])
        monkeypatch.setattr(
            shutil, "disk_usage", lambda folder: SimpleNamespace(free=find(folder)[1])
        )

    return choose


def test_needs_on_one_disk_are_added_up(disks, tmp_path):
    disks({"": (1, RESERVE + 10**9)})
    check_space([Need(tmp_path / "a", 5 * 10**8, "a"), Need(tmp_path / "b", 5 * 10**8, "b")])
    needs = [Need(tmp_path / "a", 7 * 10**8, "x"), Need(tmp_path / "b", 10**9, "y")]
    says(refused(check_space, needs, code=ExitCode.OUTPUT))


def test_each_disk_has_its_own_room(disks, tmp_path):
    for name in ("hub", "out"):
        (tmp_path / name).mkdir()
    disks({"hub": (1, RESERVE + 100), "out": (2, RESERVE + 10)})
    check_space([Need(tmp_path / "hub", 100, "x"), Need(tmp_path / "out", 10, "y")])
    with pytest.raises(UserError) as error:
        check_space([Need(tmp_path / "hub", 101, "x"), Need(tmp_path / "out", 11, "y")])
    assert len(error.value.errors) == 2


def test_nothing_is_fetched_when_there_is_no_room(disks, hub, tmp_path):
    model = remote(hub.add("a/b", {"model.safetensors": b"x" * 1000, "config.json": "{}"}))
    disks({"": (1, RESERVE + 1001)})
    says(refused(bundle, model, tmp_path / "package", code=ExitCode.OUTPUT))
    assert hub.requests == []


@pytest.fixture
def model_folder(tmp_path):
    return build_tree(tmp_path / "model", {"model.safetensors": "x" * 1000, "a.json": "{}"})


def test_a_copy_takes_room_on_the_disk_of_the_original_too(disks, model_folder, package):
    disks({"": (1, RESERVE + 1001)})
    says(refused(bundle, local(model_folder), package, code=ExitCode.OUTPUT))


def test_copies_that_share_blocks_take_no_room(disks, model_folder, package, monkeypatch):
    monkeypatch.setattr(bundling, "can_clone", lambda *_folders: True)
    disks({"": (1, 0)})
    bundle(local(model_folder), package)


def test_what_the_earlier_package_has_takes_no_room(disks, model_folder, package, tmp_path):
    earlier = tmp_path / "earlier"
    earlier.mkdir()
    bundle(local(model_folder), earlier)
    disks({"": (1, RESERVE + 2)})
    bundle(local(model_folder), package, earlier=earlier)


def test_what_a_stopped_download_has_kept_takes_no_more_room(hub, package, monkeypatch):
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 500)
    hub.fail("/cdn/*", faults.Drop(after=600), numbers=range(1))
    hub.fail("/cdn/*", faults.Status(500), numbers=range(1, 2))
    model = remote(hub.add("a/b", {"config.json": "{}", "model.safetensors": b"x" * 1000}))
    with pytest.raises(UserError):
        bundle(model, package)
    needs = []
    monkeypatch.setattr(bundling, "check_space", needs.extend)
    bundle(model, package)
    assert [need.size for need in needs] == [500, 1002]


def test_the_hubs_cache_needs_room_only_for_what_it_lacks(hub, package, tmp_path, monkeypatch):
    repository = hub.add("a/b", {"config.json": "{}", "model.safetensors": b"x" * 100})
    bundle(remote(repository), package)
    needs = []
    monkeypatch.setattr(bundling, "check_space", needs.extend)
    bundle(remote(repository), tmp_path / "another")
    assert [need.size for need in needs] == [0, 102]


# Memory


PROGRAM = """
import sys
from pathlib import Path
from h2o_pack.bundling.bundle import bundle
from tests.bridge.bundling.sources import local
from tests.hub.peak import peak
folder, package = map(Path, sys.argv[1:])
before = peak()
bundle(local(folder), package)
print(peak() - before)
"""
SMALL, LARGE = 32 << 20, 320 << 20  # bytes
PIECES = 80 << 20  # what four files at once may hold, with the threads' own


def test_the_peak_of_memory_does_not_depend_on_the_size(tmp_path):
    peaks = []
    for size in (SMALL, LARGE):
        folder, package = tmp_path / f"model-{size}", tmp_path / f"package-{size}"
        folder.mkdir()
        package.mkdir()
        for number in range(2):
            with (folder / f"model-{number}.safetensors").open("wb") as file:
                file.truncate(size // 2)
        peaks.append(int(output_of(sys.executable, "-c", PROGRAM, folder, package)))
        shutil.rmtree(package)
    assert peaks[1] < PIECES
    assert peaks[1] - peaks[0] < 16 << 20
