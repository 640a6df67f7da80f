"""An archive's segments in files: what is written, read again, continued and refused."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

import mlx.core as mx
import pytest

import h2o_py
from h2o_py.errors import H2OFileError
from tests.bridge.trees import NO_FILES, names
from tests.cexport.segments import (
    FORMAT,
    KEY_BYTES,
    ROW_BYTES,
    append,
    assert_holds,
    filled,
    opened,
    refusal,
    row_of,
    segment,
)
from tests.messages import says
from tests.nightly import nightly_except
from tests.processes import in_time, output_of, ran

CHANGED = "its content has changed"  # the reason if no call of the system failed


def other_process(text: str, *arguments: object, before: Sequence[str] = ()) -> str:
    script = (
        f"import sys\nfrom pathlib import Path\nfrom tests.cexport.segments import *\n{text}"
    )
    return output_of(*before, sys.executable, "-W", "ignore", "-c", script, *arguments)


def test_reads_what_was_appended_before_and_after_it_is_written(tmp_path):
    folder = opened(tmp_path / "layer-000")
    for seed in range(3):
        append(folder, seed)
        assert folder.row(seed, 9, 3, ROW_BYTES) == row_of(seed, 9, 3)
    assert folder.flush()
    assert_holds(folder, [0, 1, 2])
    assert folder.failure is None


def test_a_segment_is_a_safetensors_file_in_which_a_tokens_rows_lie_together(tmp_path):
    filled(tmp_path / "layer-000", 1)
    arrays = mx.load(str(tmp_path / "layer-000/000000.safetensors"))
    assert {name: array.shape for name, array in arrays.items()} == {"rows": (256, 4, 24)}
    assert bytes(memoryview(arrays["rows"][7, 2])) == row_of(0, 7, 2)


def test_files_are_their_owners_only_and_named_by_a_manifest_with_digests(tmp_path):
    path = tmp_path / "conversation/layer-000"
    session, count, chain = filled(path, 2)
    assert names(path) == ["000000.safetensors", "000001.safetensors", "lock", "manifest"]
    for folder in (path, path.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for name in names(path):
        assert stat.S_IMODE((path / name).stat().st_mode) == 0o600
    digests = [hashlib.sha256((path / f"00000{i}.safetensors").read_bytes()) for i in range(2)]
    lines = "".join(f"segment {i} {digest.hexdigest()}\n" for i, digest in enumerate(digests))
    body = (
        f"h2o-archive 2\nsession {session}\nformat {FORMAT}\nshape 4 8 16\n"
        f"dropped 0 {'0' * 64}\n{lines}"
    )
    end = hashlib.sha256(body.encode()).hexdigest()
    assert (path / "manifest").read_text() == f"{body}end {end}\n"
    linked = bytes(32)
    for digest in digests:
        linked = hashlib.sha256(linked + digest.digest()).digest()
    assert (count, chain) == (2, linked.hex())


def test_continues_where_it_was_closed(tmp_path):
    mark = filled(tmp_path / "layer-000", 2)
    folder = opened(tmp_path / "layer-000", mark)
    assert append(folder, 2) == 2
    assert folder.flush()
    assert_holds(folder, [0, 1, 2])


def test_continues_from_an_earlier_mark_and_replaces_what_came_after(tmp_path):
    path = tmp_path / "layer-000"
    folder = opened(path)
    append(folder, 0)
    folder.flush()
    append(folder, 1)
    folder.flush()
    early, late = folder.mark(0), folder.mark(1)
    del folder
    assert_holds(opened(path, early), [0])
    assert_holds(opened(path, late), [0, 1])  # opening alone removes nothing
    folder = opened(path, early)
    assert append(folder, 2) == 2
    folder.flush()
    assert_holds(folder, [0, 2])
    del folder
    assert names(path) == ["000000.safetensors", "000002.safetensors", "lock", "manifest"]
    assert refusal(path, late) == ("archive_other", str(path), CHANGED)


def test_a_folder_with_an_archive_is_no_place_for_a_new_one(tmp_path):
    path = tmp_path / "layer-000"
    filled(path, 1)
    assert refusal(path) == ("archive_not_empty", str(path), CHANGED)


def test_an_archive_that_ends_before_the_mark_is_refused(tmp_path):
    path = tmp_path / "layer-000"
    session, _, chain = filled(path, 1)
    assert refusal(path, (session, 2, chain)) == ("archive_too_short", str(path), CHANGED)
    assert refusal(tmp_path / "layer-001", (session, 2, chain))[0] == "archive_too_short"


def test_the_archive_of_another_session_is_refused(tmp_path):
    mark, second = filled(tmp_path / "layer-000", 1), filled(tmp_path / "layer-001", 1)
    assert mark[0] != second[0]
    assert refusal(tmp_path / "layer-000", second)[0] == "archive_other"


def test_a_session_that_no_folder_made_is_refused(tmp_path):
    for session in ("", "0" * 31, "0" * 33, "g" * 32, '"' * 32):
        assert refusal(tmp_path / "layer-000", (session, 0, "0" * 64))[0] == "archive_other"


def cut(file, _):
    os.truncate(file, file.stat().st_size - 100)


def lengthen(file, _):
    file.write_bytes(file.read_bytes() + b"\0")


def flip(file, _):
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def exchange(file, twin):
    shutil.copy(twin / file.name, file)


def delete(file, _):
    file.unlink()


def link(file, twin):
    file.unlink()
    file.symlink_to(twin / file.name)


HARM = pytest.mark.parametrize("harm", [cut, lengthen, flip, exchange, delete, link])


@HARM
@pytest.mark.parametrize("name", ["000001.safetensors", "manifest"])
def test_a_file_that_is_not_as_written_is_named_at_opening(tmp_path, harm, name):
    path, twin = tmp_path / "layer-000", tmp_path / "layer-001"
    mark = filled(path, 3)
    filled(twin, 3)
    harm(path / name, twin)
    code, where, _ = refusal(path, mark)
    if name != "manifest":
        assert (code, where) == ("archive_damaged", str(path / name))
    else:
        by_harm = {
            exchange: "archive_other",
            delete: "archive_too_short",
            link: "archive_unusable",
        }
        assert code == by_harm.get(harm, "archive_damaged")


@pytest.mark.parametrize("byte", range(0, 460, 20))
def test_every_byte_of_a_manifest_counts(tmp_path, byte):
    path = tmp_path / "layer-000"
    mark = filled(path, 2)
    text = bytearray((path / "manifest").read_bytes())
    text[byte % len(text)] ^= 2
    (path / "manifest").write_bytes(text)
    assert refusal(path, mark)[0] == "archive_damaged"


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("shape 4 8 16", "shape 99999999999 8 16"),
        ("shape 4 8 16", "shape -4 8 16"),
        ("shape 4 8 16", "shape 4 8 1048577"),
        ("segment 0 ", "segment 1 "),
        ("dropped 0 ", "dropped -1 "),
        ("dropped 0 ", f"dropped {2**63 - 1} "),
        ("segment 1 ", f"segment {2**63 - 1} "),
        (f"format {FORMAT}", 'format "},{"'),
        ("h2o-archive 2", "h2o-archive 3"),
    ],
)
def test_a_manifest_with_a_right_digest_and_wrong_content_is_refused(tmp_path, line, instead):
    path = tmp_path / "layer-000"
    mark = filled(path, 2)
    body = (path / "manifest").read_text().rpartition("end ")[0]
    assert line in body
    body = body.replace(line, instead)
    end = hashlib.sha256(body.encode()).hexdigest()
    (path / "manifest").write_text(f"{body}end {end}\n")
    assert refusal(path, mark)[0] == "archive_damaged"


@HARM
def test_a_file_that_changes_later_ends_the_archive(tmp_path, harm):
    path, twin = tmp_path / "layer-000", tmp_path / "layer-001"
    folder, twin_archive = opened(path), opened(twin)
    for seed in range(2):
        append(folder, seed)
        append(twin_archive, 10 + seed)
    assert folder.flush()
    assert twin_archive.flush()
    file = path / "000001.safetensors"
    harm(file, twin)
    assert folder.row(1, 0, 0, ROW_BYTES) is None
    number = {delete: errno.ENOENT, link: errno.ELOOP}.get(harm, 0)
    assert folder.failure == ("archive_not_read", str(file), number)
    assert folder.row(0, 0, 0, ROW_BYTES) is None
    assert append(folder, 2) == -1
    assert not folder.flush()


def test_two_users_of_one_folder_are_one_too_many(tmp_path):
    path = tmp_path / "layer-000"
    folder = opened(path)
    assert refusal(path) == ("archive_locked", str(path), CHANGED)
    output = other_process("print(refusal(Path(sys.argv[1]))[0])", path)
    assert output == "archive_locked\n"
    del folder
    opened(path)


def test_a_forked_child_writes_its_own_archive_and_leaves_the_parents_alone(tmp_path):
    output = other_process(
        """
import os
folder = opened(Path(sys.argv[1]))
append(folder, 0)
new = segment(1)
mx.eval(new)  # MLX itself cannot compute in a forked child
if os.fork() == 0:
    mine = opened(Path(sys.argv[1] + "-child"))
    mine.append(new, KEY_BYTES, FORMAT, True)
    assert mine.flush()
    del folder, mine
    os._exit(0)
print(os.wait()[1], flush=True)
append(folder, 1)
assert folder.flush()
assert_holds(folder, [0, 1])
""",
        tmp_path / "layer-000",
    )
    assert output == "0\n"


@pytest.mark.parametrize("kills", nightly_except([12], [12, 50]))
def test_killed_writers_leave_what_they_had_said_was_written(tmp_path, kills):
    command = [sys.executable, "-W", "ignore", "-m", "tests.cexport.killed_writers"]
    output = output_of(*command, tmp_path / "layer-000", kills)
    reached = [int(line) for line in output.split()]
    assert len(reached) == kills
    assert reached == sorted(reached)
    assert reached[-1] >= kills  # each writer reached a mark of its own


def test_files_that_a_crash_left_are_removed(tmp_path):
    path = tmp_path / "layer-000"
    mark = filled(path, 1)
    for name in ("000007.safetensors", "000008.safetensors.new", "manifest.new", "notes.txt"):
        (path / name).write_text("left")
    opened(path, mark)
    assert names(path) == ["000000.safetensors", "lock", "manifest", "notes.txt"]


def test_files_in_a_folder_without_a_manifest_stay_as_they_are(tmp_path):
    path = tmp_path / "layer-000"
    path.mkdir()
    names = ("000003.safetensors", "000004.safetensors.new", "manifest.new")
    for name in names:
        (path / name).write_text("the user's")
    folder = opened(path)
    assert append(folder, 0) == 4
    assert folder.flush()
    assert (path / "000003.safetensors").read_text() == "the user's"


def test_a_folder_that_is_a_link_or_another_users_is_refused(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert refusal(tmp_path / "link") == (
        "archive_unusable", str(tmp_path / "link"), os.strerror(errno.ENOTDIR)
    )  # fmt: skip
    assert names(tmp_path / "real") == []
    if os.geteuid() == 0:
        os.chown(tmp_path / "real", 65534, 65534)
        error = refusal(tmp_path / "real")
        assert error[2] == os.strerror(errno.EPERM)


def test_a_temporary_file_that_is_there_is_not_written_to(tmp_path):
    folder = opened(tmp_path / "layer-000")
    path = tmp_path / "other"
    path.write_text("the user's")
    os.link(path, tmp_path / "layer-000/000000.safetensors.new")
    append(folder, 0)
    assert folder.flush()
    assert path.read_text() == "the user's"


def test_oldest_segments_go_and_the_rest_still_continues(tmp_path):
    path = tmp_path / "layer-000"
    early = filled(path, 3)
    folder = opened(path, early)
    append(folder, 3)
    folder.drop_oldest()
    folder.drop_oldest()
    folder.flush()
    mark = folder.mark(3)
    assert mark[1] == 4  # including the two that were dropped
    assert_holds(folder, [2, 3])
    assert folder.row(0, 0, 0, ROW_BYTES) is None
    assert folder.failure is None  # whoever still wants it has no archive; the owner has
    del folder
    assert_holds(opened(path, mark), [2, 3])
    assert_holds(opened(path, early), [2])  # also from before, with what is left


def test_a_segment_dropped_before_it_is_written_goes_once_it_is(tmp_path):
    folder = opened(tmp_path / "layer-000")
    for seed in range(6):
        append(folder, seed)
        if seed >= 2:
            folder.drop_oldest()
    assert folder.flush()
    assert folder.mark(5)[1] == 6
    assert_holds(folder, [4, 5])


def test_a_mark_needs_segments_that_are_written(tmp_path):
    folder = opened(tmp_path / "layer-000")
    none = folder.mark(-1)
    assert none[1] == 0
    append(folder, 0)
    assert folder.flush()
    assert folder.is_written(0)
    assert not folder.is_written(1)
    assert folder.mark(-1) == none
    assert folder.mark(0)[1] == 1
    assert folder.mark(1) is None


def test_newest_segments_go_again(tmp_path):
    path = tmp_path / "layer-000"
    folder = opened(path)
    for seed in range(4):
        append(folder, seed)
        if seed == 1:
            folder.flush()
    for _ in range(3):  # written ones and, most likely, waiting ones
        folder.drop_newest()
    assert append(folder, 4) == 4
    assert folder.flush()
    assert_holds(folder, [0, 4])
    mark = folder.mark(4)
    del folder
    assert_holds(opened(path, mark), [0, 4])


def test_rows_of_another_shape_or_format_have_no_place(tmp_path):
    path = tmp_path / "layer-000"
    folder = opened(path, filled(path, 1))
    rows = segment(1)
    assert folder.append(rows, KEY_BYTES + 4, FORMAT, True) == -1
    assert folder.append(rows, KEY_BYTES, "8-64-float16", True) == -1
    assert append(folder, 1) == 1


def own_mounts() -> bool:
    """Whether this user may mount file systems that only their own processes see."""
    tool = shutil.which("unshare")
    return tool is not None and ran(tool, "--map-root-user", "--mount", "true").returncode == 0


MOUNTS = pytest.mark.skipif(not own_mounts(), reason="no file systems of its own here")


def on_a_small_disk(path: Path, kibibytes: int, text: str) -> str:
    path.mkdir()
    mount = f"mount -t tmpfs -o size={kibibytes}k none {path} && exec"
    return other_process(
        text, path, before=["unshare", "-rm", "sh", "-c", f'{mount} "$@"', "sh"]
    )


@MOUNTS
def test_a_full_disk_ends_the_archive_and_leaves_what_was_written(tmp_path):
    text = """
folder = opened(Path(sys.argv[1]) / "layer-000")
serials = []
while not folder.failure:
    serials.append(append(folder, len(serials)))
    folder.flush()
print(folder.failure[0], folder.failure[2], append(folder, 9), len(serials))
del folder
print(*sorted(each.name for each in (Path(sys.argv[1]) / "layer-000").iterdir()))
"""
    first, rest = on_a_small_disk(tmp_path / "disk", 120, text).splitlines()
    code, error, after, appended = first.split()
    assert (code, int(error), int(after)) == ("archive_not_written", errno.ENOSPC, -1)
    segments = [f"{i:06}.safetensors" for i in range(int(appended) - 1)]
    assert segments
    assert rest.split() == [*segments, "lock", "manifest"]


@MOUNTS
def test_a_read_only_disk_is_refused_at_opening_and_ends_an_archive_later(tmp_path):
    text = """
import subprocess
folder = opened(Path(sys.argv[1]) / "layer-000")
append(folder, 0)
folder.flush()
mark = folder.mark(0)
subprocess.run(["mount", "-o", "remount,ro", sys.argv[1]])  # busy: the lock is open for writing
subprocess.run(["mount", "--bind", "-o", "ro", sys.argv[1], sys.argv[1]], check=True)
print(append(folder, 1), folder.flush())
del folder
print(*refusal(Path(sys.argv[1]) / "layer-000", mark)[::2])
print(*refusal(Path(sys.argv[1]) / "layer-001")[::2])
"""
    lines = on_a_small_disk(tmp_path / "disk", 1000, text).splitlines()
    assert lines[1:] == [f"archive_unusable {os.strerror(errno.EROFS)}"] * 2


def test_a_folder_that_can_not_be_used_says_why(tmp_path):
    (tmp_path / "file").write_text("")
    assert refusal(tmp_path / "file/layer-000")[2] == os.strerror(errno.ENOTDIR)
    assert refusal(tmp_path / "a/b/layer-000")[2] == os.strerror(errno.ENOENT)


def test_a_step_never_waits_and_a_chunk_waits_for_room(tmp_path):
    most = 64 << 20
    rows = mx.zeros((1, 32, 256, 1024), mx.uint32)  # 32 MiB a segment
    folder = opened(tmp_path / "layer-000")
    for i in range(4):  # with room for two: writes of the first ones end meanwhile
        assert folder.append(rows, 2048, FORMAT, True) == i
    steps = [folder.append(rows, 2048, FORMAT, False) for _ in range(8)]
    assert -1 in steps
    assert sum(seconds >= 0 for seconds in steps) * rows.nbytes <= 2 * most + rows.nbytes
    assert folder.failure == ("archive_too_slow", folder.path, 0)


def test_deletes_a_conversation_that_nobody_has_open(tmp_path):
    conversation = tmp_path / "conversation"
    for layer in (0, 12):
        filled(conversation / f"layer-{layer:03}", 2)
    folder = opened(tmp_path / "other/layer-000")
    h2o_py.delete_archive(conversation)
    assert names(tmp_path) == ["other"]
    with pytest.raises(H2OFileError) as error:
        h2o_py.delete_archive(tmp_path / "other")
    assert error.value.code == "archive_locked"
    assert error.value.values["path"] == str(tmp_path / "other/layer-000")
    says(error.value)
    assert folder.failure is None
    h2o_py.delete_archive(conversation)  # there is none


def test_deletes_only_its_own_files(tmp_path):
    conversation = tmp_path / "conversation"
    filled(conversation / "layer-000", 1)
    (conversation / "layer-000/notes.txt").write_text("mine")
    (conversation / "photos").mkdir()
    others = {"manifest": "mine", "000000.safetensors": "mine", "lock": "mine"}
    for layer, files in (
        ("layer-001", ["manifest", "000000.safetensors"]),
        ("layer-002", others),
    ):
        (conversation / layer).mkdir()
        for name in files:
            (conversation / layer / name).write_text(others[name])
    h2o_py.delete_archive(conversation)
    assert names(conversation) == ["layer-000", "layer-001", "layer-002", "photos"]
    assert names(conversation / "layer-000") == ["notes.txt"]
    assert names(conversation / "layer-001") == ["000000.safetensors", "manifest"]
    assert names(conversation / "layer-002") == sorted(others)
    assert h2o_py.delete_stale_archives(tmp_path, []) == []


@pytest.mark.parametrize("name", ["manifest", "000000.safetensors", "lock"])
@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "long"])
def test_only_files_of_an_archive_are_read(name, kind, tmp_path):
    layer = tmp_path / "conversation/layer-000"
    mark = filled(layer, 1)
    path = layer / name
    path.unlink()
    NO_FILES[kind](path)
    if name == "lock" and kind in ("pipe", "long"):  # it is locked and not read
        assert opened(layer, mark).failure is None
        return
    with in_time():
        assert refusal(layer, mark)[0] in ("archive_unusable", "archive_damaged")
