"""What users see of archives in files."""

import json
import sys

import mlx.core as mx
import pytest

import h2o_py
from h2o_py import __main__ as commands
from h2o_py import errors, store
from h2o_py._compiled import ext
from h2o_py.cache import H2OKVCache
from tests.bridge.trees import names
from tests.cexport.segments import filled
from tests.conftest import DEMO
from tests.h2o_py.cases import BACKENDS, changed, random_tokens, step
from tests.messages import says
from tests.nightly import nightly_except
from tests.processes import full_disk, output_of


def test_archives_of_sessions_that_ended_go_but_for_those_to_keep(tmp_path):
    for name in ("ended", "kept"):
        filled(tmp_path / name / "layer-000", 1)
    running = ext.open_segment_folder(str(tmp_path / "running/layer-000"))
    (tmp_path / "photos").mkdir()
    assert h2o_py.delete_stale_archives(tmp_path, keep=["kept"]) == ["ended"]
    assert names(tmp_path) == ["kept", "photos", "running"]
    assert running.failure is None
    assert h2o_py.delete_stale_archives(tmp_path / "nowhere") == []


def test_what_another_process_deletes_meanwhile_is_passed_by(tmp_path, monkeypatch):
    entries = store._entries
    monkeypatch.setattr(store, "_entries", lambda path: [*entries(path), path / "layer-009"])
    filled(tmp_path / "ended/layer-000", 1)
    assert h2o_py.delete_stale_archives(tmp_path) == ["ended"]


def test_a_refusal_names_the_file_and_the_reason(tmp_path):
    mark = filled(tmp_path / "chat/layer-000", 1)
    segment = tmp_path / "chat/layer-000/000000.safetensors"
    segment.unlink()
    with pytest.raises(h2o_py.H2OFileError) as error:
        ext.open_segment_folder(str(tmp_path / "chat/layer-000"), mark)
    says(error.value)


SIZES = {"sink_size": 2, "heavy_budget": 10, "recent_budget": 8}
SEGMENT = [510, 1, 1]
"""The last step lets the first segment go into its file."""
TRAFFIC = [300, 1, 1, 530, *[1] * 70, 40, 260, 9, *[1] * 5]


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch):
    monkeypatch.setattr(errors, "_reported", set())


def config(store=None, **changes):
    recall = h2o_py.H2ORecall(ask=4, store=store and str(store), **changes)
    return h2o_py.H2OConfig(24, **SIZES, recall=recall)


def take(cache, traffic, seed, *, is_written=True, **shape):
    """Outputs of attention; what waits to be written is written after each part."""
    mx.random.seed(seed)
    outs = []
    for tokens in traffic:
        outs.append(step(cache, *random_tokens(tokens, **shape)))
        mx.eval(outs[-1], cache.arrays)
        assert cache.archive is None or cache.archive.flush() == is_written
    return outs


def assert_equal(ours, wanted):
    assert all(mx.array_equal(a, b) for a, b in zip(ours, wanted, strict=True))


def in_files(cache):
    return cache.archive.mark[1]


STORED = [
    ("fast", 4, mx.float16),
    ("fast", 8, mx.float32),
    ("fast", 16, mx.bfloat16),
    ("fallback", 4, mx.bfloat16),
    ("fallback", 16, mx.float32),
]


@pytest.mark.parametrize(
    ("name", "bits", "dtype"), nightly_except([STORED[0], STORED[-1]], STORED), ids=str
)
def test_a_cache_reads_the_same_from_files_as_from_memory(tmp_path, name, bits, dtype):
    shape = {"batch": 2, "dtype": dtype}
    memory = H2OKVCache(config(archive_bits=bits), BACKENDS[name])
    files = H2OKVCache(config(tmp_path / "chat", archive_bits=bits), BACKENDS[name])
    expected = take(memory, TRAFFIC, 0, **shape)
    assert_equal(take(files, TRAFFIC, 0, **shape), expected)
    assert memory.archive_reads == files.archive_reads > 0
    assert_equal(files.ledger, memory.ledger)
    assert in_files(files) == 4
    assert len(files.archive.arrays) == 1  # of the 187 newest tokens
    first, second = files.archive, memory.archive
    assert_equal(first.rows(0, first.length), second.rows(0, second.length))


@pytest.mark.parametrize("after", nightly_except([0, 200], [0, 70, 200, 330]))
def test_a_saved_cache_can_be_of_any_moment(tmp_path, after):
    """Whatever had been written when it was saved, the rest is in the saved cache."""
    memory, files = H2OKVCache(config()), H2OKVCache(config(tmp_path / "chat"))
    take(memory, [700, *[1] * after], 0)
    take(files, [700, *[1] * after], 0)
    h2o_py.save_cache(tmp_path / "saved.safetensors", [files])
    take(files, [600], 1)  # goes on, and is given up
    del files
    restored = h2o_py.load_cache(tmp_path / "saved.safetensors", tmp_path / "chat")[0][0]
    assert_equal(take(restored, TRAFFIC, 2), take(memory, TRAFFIC, 2))


def test_a_saved_cache_chooses_no_folder(tmp_path):
    """It goes on in the folder that it is given, and only in that of its archive."""
    files = H2OKVCache(config(tmp_path / "chat"))
    take(files, TRAFFIC, 0)
    h2o_py.save_cache(tmp_path / "saved.safetensors", [files])

    def refusal(*store):
        with pytest.raises(h2o_py.H2OFileError) as error:
            h2o_py.load_cache(tmp_path / "saved.safetensors", *store)
        return error.value.code

    assert refusal(tmp_path / "chat") == "archive_locked"
    del files
    before = sorted(tmp_path.rglob("*"))
    assert refusal() == "archive_not_given"
    assert refusal(tmp_path / "other") == "archive_too_short"
    assert [path for path in before if not path.exists()] == []
    (tmp_path / "chat/manifest").unlink()
    assert refusal(tmp_path / "chat") == "archive_too_short"


def test_the_name_of_a_layer_is_all_that_counts_of_a_folder_that_is_named(tmp_path):
    files = H2OKVCache(config(tmp_path / "chat/layer-003"))
    take(files, TRAFFIC, 0)
    arrays, header = files.arrays, files.header
    assert "\narchive.folder=layer-003\n" in header
    assert str(tmp_path) not in header
    del files
    for name in ("", "..", "layer-003/..", "/layer-003", "layer-03", "layer-" + "0" * 10):
        damaged = changed(header, folder_of_archive=name)
        with pytest.raises(h2o_py.H2OStateError) as error:
            H2OKVCache.restored(arrays, damaged, str(tmp_path / "chat"))
        assert error.value.values["part"] == "archive.folder"
    restored = H2OKVCache.restored(arrays, header, str(tmp_path / "chat"))
    assert restored.config.recall.store == str(tmp_path / "chat/layer-003")


def test_an_archive_without_arrays_that_tell_its_shape_is_refused(tmp_path):
    """Files of another shape would be read past the end of the rows."""
    files = H2OKVCache(config(tmp_path / "chat"))
    take(files, SEGMENT, 0)
    arrays, header = files.arrays, files.header
    assert in_files(files) == 1
    del files
    with pytest.raises(h2o_py.H2OStateError) as error:
        H2OKVCache.restored(arrays[:5], header, str(tmp_path / "chat"))
    assert error.value.values["part"] == "archive's number of arrays"


def test_a_saved_cache_is_its_owners_only(tmp_path):
    cache = H2OKVCache(config())
    take(cache, [9], 0)
    file = tmp_path / "saved.safetensors"
    file.write_bytes(b"older")
    file.chmod(0o644)
    for path in (file, tmp_path / "new.safetensors"):
        h2o_py.save_cache(path, [cache])
        assert path.stat().st_mode & 0o777 == 0o600


def test_stale_archives_behind_links_stay(tmp_path):
    filled(tmp_path / "chat/layer-000", 1)
    root = tmp_path / "root"
    (root / "linked").mkdir(parents=True)
    (root / "linked/layer-000").symlink_to(tmp_path / "chat/layer-000")
    (root / "whole").symlink_to(tmp_path / "chat")
    assert h2o_py.delete_stale_archives(root) == []
    files = ["000000.safetensors", "lock", "manifest"]
    assert names(tmp_path / "chat/layer-000") == files


def test_a_copy_reads_the_files_and_keeps_its_own_tokens_in_memory(tmp_path):
    memory, files = H2OKVCache(config()), H2OKVCache(config(tmp_path / "chat"))
    take(memory, TRAFFIC, 0)
    take(files, TRAFFIC, 0)
    twin, its_twin = files.copy(), memory.copy()
    assert_equal(take(twin, TRAFFIC, 1), take(its_twin, TRAFFIC, 1))
    assert in_files(twin) == in_files(files) == 4
    assert_equal(take(files, TRAFFIC, 2), take(memory, TRAFFIC, 2))
    assert in_files(files) > 4


@pytest.mark.parametrize("n", nightly_except([1, 443, 700], [1, 100, 188, 443, 444, 700]))
def test_trimmed_tokens_leave_the_files_again(tmp_path, n):
    big = {"heavy_budget": 900, "recent_budget": 90, "sink_size": 2}
    recall = h2o_py.H2ORecall(ask=4, store=str(tmp_path / "chat"))
    files = H2OKVCache(h2o_py.H2OConfig(1000, **big, recall=recall))
    memory = H2OKVCache(h2o_py.H2OConfig(1000, **big, recall=h2o_py.H2ORecall(ask=4)))
    take(memory, [600, 300, 55, 1], 0)
    take(files, [600, 300, 55, 1], 0)
    assert in_files(files) == 3
    assert memory.trim(n) == files.trim(n) == n
    assert in_files(files) == min(3, (956 - n) // 256)
    assert_equal(take(files, [700, 30], 1), take(memory, [700, 30], 1))
    first, second = files.archive, memory.archive
    assert_equal(first.rows(0, first.length), second.rows(0, second.length))


@pytest.mark.filterwarnings("ignore::h2o_py.errors.H2ORecallWarning")
def test_a_limit_lets_the_oldest_files_go(tmp_path):
    token = 2 * 2 * (64 + 16)  # two heads; key and value at 8 bits in float32
    memory = H2OKVCache(config(limit=600 * token))
    files = H2OKVCache(config(tmp_path / "chat", limit=600 * token))
    assert_equal(take(files, TRAFFIC, 0), take(memory, TRAFFIC, 0))
    assert files.archive.first == memory.archive.first == 768
    assert names(tmp_path / "chat") == ["000003.safetensors", "lock", "manifest"]
    h2o_py.save_cache(tmp_path / "saved.safetensors", [files])
    del files
    restored = h2o_py.load_cache(tmp_path / "saved.safetensors", tmp_path / "chat")[0][0]
    assert_equal(take(restored, TRAFFIC, 2), take(memory, TRAFFIC, 2))
    assert restored.archive.first == memory.archive.first


@pytest.mark.parametrize("name", BACKENDS)
def test_a_file_that_is_lost_ends_recall_and_not_the_conversation(tmp_path, name):
    cache = H2OKVCache(config(tmp_path / "chat"), BACKENDS[name])
    take(cache, TRAFFIC, 0)
    (tmp_path / "chat/000001.safetensors").unlink()
    with pytest.warns(h2o_py.H2ORecallWarning) as warnings:
        outs = take(cache, [40, 1, 300, 40, 1], 1)
    (warning,) = (raised.message for raised in warnings)
    assert warning.code == "archive_not_read"
    says(warning)
    assert all(mx.isfinite(out).all() for out in outs)
    assert cache.archive is None


def test_a_disk_that_is_full_ends_recall_and_not_the_conversation(tmp_path):
    cache = H2OKVCache(config(tmp_path / "chat"))
    take(cache, [300, 1], 0)

    def go_on():
        outs = take(cache, [300], 1)
        outs += take(cache, [1], 1, is_written=False)  # hands the second segment over
        return outs + take(cache, [40, 1, 300, 40, 1], 2)

    with pytest.warns(h2o_py.H2ORecallWarning) as warnings, full_disk():
        outs = go_on()
    assert [raised.message.code for raised in warnings] == ["archive_not_written"]
    assert all(mx.isfinite(out).all() for out in outs)
    assert cache.archive is None


@pytest.mark.parametrize(
    "mark",
    [
        {"count": None},
        {"count": "true"},
        {"count": "-" + "9" * 30},
        {"count": "9" * 30},
        {"session": "0" * 31 + "\ud800"},
        {"session": "0" * 31},
        {"session": "0" * 32},
        {"chain": "0" * 63},
        {"chain": "0" * 64},
    ],
    ids=str,
)
def test_a_mark_that_no_archive_made_is_refused(tmp_path, mark):
    files = H2OKVCache(config(tmp_path / "layer-000"))
    take(files, SEGMENT, 0)
    arrays, header = files.arrays, files.header
    del files
    damaged = changed(header, **{f"{name}_of_archive": value for name, value in mark.items()})
    with pytest.raises(h2o_py.H2OError) as error:
        H2OKVCache.restored(arrays, damaged, str(tmp_path))
    assert error.value.code == ("damaged_header" if None in mark.values() else "archive_other")
    assert H2OKVCache.restored(arrays, header, str(tmp_path)).archive.mark


def test_the_command_says_what_is_wrong_with_the_folder(tmp_path):
    filled(tmp_path / "chat/layer-000", 1)
    command = ["generate", "--model", str(DEMO), "--prompt", "words " * 9, "--max-tokens", "1"]
    recall = ["--max-kv", "96", "--recall", f"store={tmp_path / 'chat'}"]
    with pytest.raises(SystemExit) as error:
        commands.main([*command, *recall])
    problem = f"error: {tmp_path / 'chat/layer-000'} contains the archive of another"
    assert str(error.value.code).startswith(problem)


@pytest.mark.nightly("test_a_cache_reads_the_same_from_files_as_from_memory")
@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
@pytest.mark.parametrize(("tokens", "ask"), [(32768, 32), (4096, 512)])
def test_reading_an_archive_in_files_takes_less_than_32_mib(tmp_path, tokens, ask):
    """Beside the tokens' own arrays. The archive of 32,768 tokens is larger than that."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.h2o_py.recall_memory"]
    measured = json.loads(output_of(*command, tmp_path / "layer", tokens, ask))
    assert measured["read"] > 0
    assert measured["segments_in_files"] >= tokens // 256 - 4  # the newest are in memory
    own = 2 * ask * 32 * 128 * 4 / 2**20  # queries and what they read, in float32
    assert measured["most"] - measured["before"] < 32 + own
