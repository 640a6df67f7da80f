"""The earlier file of saved caches stays until the new one is whole, whatever happens."""

import signal

import mlx.core as mx
import pytest

from h2o_py.cache import H2OKVCache
from h2o_py.errors import H2OFileError
from h2o_py.store import load_cache, save_cache
from tests.bridge.trees import NO_FILES
from tests.h2o_py.cases import SMALL, random_tokens, step
from tests.messages import says
from tests.processes import full_disk, in_time, python

NAME = "chat.safetensors"
write = mx.save_safetensors


def filled(tokens):
    cache = H2OKVCache(SMALL)
    mx.eval(step(cache, *random_tokens(tokens)))
    return cache


@pytest.fixture
def path(tmp_path):
    """A conversation of 20 tokens, beside files that are somebody else's."""
    for name in ("chat.new.safetensors", f".{NAME}.mine.new", f"{NAME}.new"):
        (tmp_path / name).write_text("mine")
    save_cache(tmp_path / NAME, [filled(20)], {"turn": "1"})
    return tmp_path / NAME


def turn_of(path):
    caches, metadata = load_cache(path)
    assert caches[0].offset == 20 * int(metadata["turn"])
    assert sorted(other.name for other in path.parent.iterdir()) == sorted(
        (NAME, "chat.new.safetensors", f".{NAME}.mine.new", f"{NAME}.new")
    )
    return metadata["turn"]


def test_a_full_disk_leaves_the_earlier_conversation(path):
    cache = filled(40)
    with pytest.raises(OSError, match="too large"), full_disk():
        save_cache(path, [cache], {"turn": "2"})
    assert turn_of(path) == "1"


def test_a_save_that_fails_leaves_the_earlier_conversation(path, monkeypatch):
    def fail(file, *_):
        file.write(b"half")
        raise RuntimeError

    monkeypatch.setattr(mx, "save_safetensors", fail)
    with pytest.raises(RuntimeError):
        save_cache(path, [filled(40)], {"turn": "2"})
    assert turn_of(path) == "1"


def test_a_killed_save_leaves_the_earlier_conversation_and_the_next_one_tidies_up(path):
    script = f"""
import os, signal
import mlx.core as mx
from tests.h2o_py.test_saving import filled, save_cache
def kill(file, *_):
    file = open(file, "wb") if isinstance(file, str) else file
    file.write(b"half")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
mx.save_safetensors = kill
save_cache({str(path)!r}, [filled(40)], {{"turn": "2"}})
"""
    assert python("-W", "ignore", "-c", script).returncode == -signal.SIGKILL
    assert load_cache(path)[1] == {"turn": "1"}
    save_cache(path, [filled(60)], {"turn": "3"})
    assert turn_of(path) == "3"


def test_two_saves_at_once_leave_one_whole_conversation(path, monkeypatch):
    def save_meanwhile(*arguments):
        monkeypatch.setattr(mx, "save_safetensors", write)
        save_cache(path, [filled(60)], {"turn": "3"})
        assert load_cache(path)[1] == {"turn": "3"}
        write(*arguments)

    monkeypatch.setattr(mx, "save_safetensors", save_meanwhile)
    save_cache(path, [filled(40)], {"turn": "2"})
    assert turn_of(path) == "2"


@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "link to itself"])
def test_only_a_file_is_read_as_a_saved_cache(kind, tmp_path):
    path = tmp_path / NAME
    NO_FILES[kind](path)
    with pytest.raises(H2OFileError) as error, in_time():
        load_cache(path)
    assert error.value.code == "unreadable_cache_file"
    says(error.value)
