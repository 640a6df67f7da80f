"""What users see of archives in files."""

import pytest

import h2o_py
from h2o_py import archive_files
from tests.cexport.segments import append, filled


def test_an_archive_goes_with_its_conversation(tmp_path):
    filled(tmp_path / "chat/layer-000", 1)
    h2o_py.delete_archive(tmp_path / "chat")
    assert list(tmp_path.iterdir()) == []
    h2o_py.delete_archive(tmp_path / "chat")


def test_archives_of_sessions_that_ended_go_but_for_those_to_keep(tmp_path):
    for name in ("a", "b"):
        filled(tmp_path / name / "layer-000", 1)
    assert h2o_py.delete_stale_archives(tmp_path, keep=["b"]) == ["a"]
    assert [each.name for each in tmp_path.iterdir()] == ["b"]


def test_an_archive_that_is_open_stays(tmp_path):
    folder = archive_files.open_folder(str(tmp_path / "chat/layer-000"))
    with pytest.raises(h2o_py.H2OFileError) as refused:
        h2o_py.delete_archive(tmp_path / "chat")
    assert refused.value.code == "archive_locked"
    assert str(refused.value) == (
        f"{tmp_path / 'chat/layer-000'}: another cache has this archive open, in this process "
        "or another. Close it, or give each conversation a folder of its own."
    )
    append(folder, 0)
    assert folder.flush()


def test_a_refusal_names_the_file_and_the_reason(tmp_path):
    mark = filled(tmp_path / "chat/layer-000", 1)
    segment = tmp_path / "chat/layer-000/000000.safetensors"
    segment.unlink()
    with pytest.raises(h2o_py.H2OFileError) as refused:
        archive_files.open_folder(str(tmp_path / "chat/layer-000"), mark)
    assert str(refused.value) == (
        f"{segment}: it is missing or not as the archive wrote it (No such file or "
        "directory). "
        "Remove the archive with h2o_py.delete_archive and make the cache again from its "
        "prompt."
    )
