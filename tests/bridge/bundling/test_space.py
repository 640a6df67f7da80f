from __future__ import annotations

import shutil
from types import SimpleNamespace

import pytest
from huggingface_hub import constants

from h2o_pack.bundling import bundle as bundling
from h2o_pack.bundling.bundle import RESERVE, Need, bundle, check_space
from h2o_pack.errors import ExitCode, UserError
from tests.bridge.bundling.sources import local, remote
from tests.bridge.trees import build_tree
from tests.hub import faults
from tests.hub.contents import Content
from tests.messages import says


@pytest.fixture
def disks(monkeypatch):
    """Make folders lie on disks of other sizes: {part of the path: (disk, bytes free)}."""

    def choose(places):
        def find(folder):
            return next(each for part, each in places.items() if part in str(folder))

        monkeypatch.setattr(bundling, "device", lambda folder: find(folder)[0])
        monkeypatch.setattr(
            shutil, "disk_usage", lambda folder: SimpleNamespace(free=find(folder)[1])
        )

    return choose


def test_needs_on_one_disk_are_added_up(disks, tmp_path):
    disks({"": (1, RESERVE + 10**9)})
    check_space([Need(tmp_path / "a", 5 * 10**8, "a"), Need(tmp_path / "b", 5 * 10**8, "b")])
    with pytest.raises(UserError) as caught:
        check_space([Need(tmp_path / "a", 7 * 10**8, "x"), Need(tmp_path / "b", 10**9, "y")])
    assert caught.value.code == ExitCode.OUTPUT
    says(caught.value)


def test_each_disk_has_its_own_room(disks, tmp_path):
    for name in ("hub", "out"):
        (tmp_path / name).mkdir()
    disks({"hub": (1, RESERVE + 100), "out": (2, RESERVE + 10)})
    check_space([Need(tmp_path / "hub", 100, "x"), Need(tmp_path / "out", 10, "y")])
    with pytest.raises(UserError) as caught:
        check_space([Need(tmp_path / "hub", 101, "x"), Need(tmp_path / "out", 11, "y")])
    assert len(caught.value.errors) == 2


def test_nothing_is_fetched_when_there_is_no_room(disks, hub, tmp_path):
    model = remote(hub.add("a/b", {"model.safetensors": b"x" * 1000, "config.json": "{}"}))
    disks({"": (1, RESERVE + 1001)})
    with pytest.raises(UserError) as caught:
        bundle(model, tmp_path / "package")
    says(caught.value)
    assert hub.requests == []


@pytest.fixture
def folder(tmp_path):
    return build_tree(tmp_path / "model", {"model.safetensors": "x" * 1000, "a.json": "{}"})


def test_a_copy_takes_room_on_the_disk_of_the_original_too(disks, folder, tmp_path):
    (tmp_path / "package").mkdir()
    disks({"": (1, RESERVE + 1001)})
    with pytest.raises(UserError) as caught:
        bundle(local(folder), tmp_path / "package")
    says(caught.value)


def test_copies_that_share_blocks_take_no_room(disks, folder, tmp_path, monkeypatch):
    (tmp_path / "package").mkdir()
    monkeypatch.setattr("h2o_pack.bundling.bundle.can_clone", lambda _folder, _package: True)
    disks({"": (1, 0)})
    bundle(local(folder), tmp_path / "package")


def test_what_the_earlier_package_has_takes_no_room(disks, folder, tmp_path):
    for name in ("earlier", "package"):
        (tmp_path / name).mkdir()
    bundle(local(folder), tmp_path / "earlier")
    disks({"": (1, RESERVE + 2)})
    bundle(local(folder), tmp_path / "package", earlier=tmp_path / "earlier")


def test_what_a_stopped_download_has_kept_takes_no_more_room(hub, tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 500)
    hub.fail("/cdn/*", faults.Drop(after=600), numbers=range(1))
    hub.fail("/cdn/*", faults.Status(500), numbers=range(1, 2))
    model = remote(hub.add("a/b", {"config.json": "{}", "model.safetensors": b"x" * 1000}))
    (tmp_path / "package").mkdir()
    with pytest.raises(UserError):
        bundle(model, tmp_path / "package")
    asked = []
    monkeypatch.setattr("h2o_pack.bundling.bundle.check_space", asked.extend)
    bundle(model, tmp_path / "package")
    assert [each.size for each in asked] == [500, 1002]


def test_the_hubs_cache_needs_room_only_for_what_it_lacks(hub, tmp_path, monkeypatch):
    repository = hub.add("a/b", {"config.json": "{}", "model.safetensors": b"x" * 100})
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    bundle(remote(repository), tmp_path / "one")
    asked = []
    monkeypatch.setattr("h2o_pack.bundling.bundle.check_space", asked.extend)
    bundle(remote(repository), tmp_path / "two")
    assert [each.size for each in asked] == [0, 102]


def test_a_content_of_any_size_is_counted_before_it_is_asked_for(hub, tmp_path):
    huge = Content(b"x", lfs=True, says_size=10**15)
    model = remote(hub.add("a/b", {"model.safetensors": huge}))
    (tmp_path / "package").mkdir()
    with pytest.raises(UserError, match=r"1000000\.00 GB for the hub's cache"):
        bundle(model, tmp_path / "package")
    assert hub.requests == []
