from __future__ import annotations

import ctypes
import shutil

import pytest

from h2o_pack.files import digests as clones
from h2o_pack.files.digests import can_clone, clone
from tests.bridge.trees import names


@pytest.fixture
def original(tmp_path):
    path = tmp_path / "original"
    path.write_text("text")
    return path


def test_a_clone_is_a_file_of_its_own_or_nothing(original, tmp_path):
    target = tmp_path / "clone"
    if clone(original, target):
        target.write_text("other")
        assert original.read_text() == "text"
    else:
        assert names(tmp_path) == ["original"]


def test_whether_files_can_be_cloned_is_tried_and_leaves_nothing(original, tmp_path):
    able = can_clone(tmp_path, tmp_path)
    assert names(tmp_path) == ["original"]
    assert able == clone(original, tmp_path / "clone")


def test_a_file_that_is_there_is_not_replaced(original, tmp_path):
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(FileExistsError):
        clone(original, tmp_path / "mine")
    assert (tmp_path / "mine").read_text() == "mine"


@pytest.mark.parametrize(("result", "made"), [(0, True), (-1, False)])
def test_apfs_is_asked_by_clonefile(original, tmp_path, monkeypatch, result, made):
    class System:
        @staticmethod
        def clonefile(source, target, flags):
            if result == 0:
                shutil.copyfile(source, target)
            assert isinstance(flags, ctypes.c_uint32)
            return result

    monkeypatch.setattr(clones.sys, "platform", "darwin")
    monkeypatch.setattr(clones.ctypes, "CDLL", lambda _name: System)
    assert clone(original, tmp_path / "clone") == made
    assert (tmp_path / "clone").exists() == made
