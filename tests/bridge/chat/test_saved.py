"""A saved conversation goes on as if it had not been saved; nothing else is taken for one."""

import stat

import pytest

from h2o_pack.chat.conversation import Conversation
from h2o_pack.chat.saved import load, save
from h2o_pack.errors import ExitCode, UserError
from h2o_py.store import load_cache, save_cache
from tests.bridge.chat.test_conversation import NEXT, QUESTION, answer
from tests.messages import says


@pytest.mark.parametrize("kind", ["full", "bounded", "thinking"])
def test_it_goes_on_with_the_same_text(kind, request, tmp_path):
    path = tmp_path / "talk"
    talk = Conversation(
        request.getfixturevalue(kind), seed=5, max_tokens=10, system_prompt="Be kind."
    )
    answer(talk, QUESTION)
    save(talk, path)
    other = Conversation(talk.model, seed=6, max_tokens=10)
    load(other, path)
    assert other.messages == talk.messages
    for _ in range(2):
        assert answer(other)[:2] == answer(talk)[:2]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [child.name for child in tmp_path.iterdir()] == ["talk"]


def test_it_goes_on_without_thoughts_if_they_were_turned_off(thinking, tmp_path):
    talk = Conversation(thinking, seed=5, max_tokens=10)
    answer(talk, QUESTION)
    talk.think(thinking=False)
    save(talk, tmp_path / "talk")
    other = Conversation(thinking, max_tokens=10)
    load(other, tmp_path / "talk")
    assert answer(other)[:2] == answer(talk)[:2]
    assert other.messages[-1].keys() == {"role", "content"}


def test_one_that_has_not_begun_can_be_saved_and_one_file_be_written_again(bounded, tmp_path):
    talk = Conversation(bounded, seed=5, max_tokens=5, system_prompt="Be kind.")
    save(talk, tmp_path / "talk")
    other = Conversation(bounded, max_tokens=5)
    load(other, tmp_path / "talk")
    assert other.system_prompt == "Be kind."
    answer(other)
    save(other, tmp_path / "talk")
    load(talk, tmp_path / "talk")
    assert talk.messages == other.messages


@pytest.mark.parametrize("content", [b"mine", b"", None])
def test_a_file_of_the_user_is_neither_read_nor_replaced(content, full, tmp_path):
    path = tmp_path / "notes"
    path.mkdir() if content is None else path.write_bytes(content)
    talk = Conversation(full)
    with pytest.raises(UserError) as refusal:
        save(talk, path)
    assert refusal.value.code == ExitCode.OUTPUT
    says(refusal.value)
    with pytest.raises(UserError) as refusal:
        load(talk, path)
    assert refusal.value.code == ExitCode.USAGE
    says(refusal.value)
    assert path.is_dir() if content is None else path.read_bytes() == content


def test_a_cache_without_messages_is_no_conversation(bounded, tmp_path):
    talk = Conversation(bounded, max_tokens=5)
    answer(talk)
    save_cache(tmp_path / "c.safetensors", talk.caches)
    with pytest.raises(UserError) as refusal:
        load(talk, tmp_path / "c.safetensors")
    says(refusal.value)


def test_another_models_or_other_settings_are_refused_by_name(full, bounded, tmp_path):
    save(Conversation(full), tmp_path / "talk")
    with pytest.raises(UserError) as refusal:
        load(Conversation(bounded), tmp_path / "talk")
    says(refusal.value)


@pytest.mark.parametrize(
    "change",
    [
        ('"replies":1', '"replies":-1'),
        ('"role":"user"', '"role":"tool"'),
        ('"count":2', '"count":9'),
        ('"pinned":0', '"pinned":999'),
        ('"ended":false', '"ended":2'),
        ('"steps":[[', '"steps":[[],['),
        ('"steps":[[', '"steps":[99999,['),
        ('"steps":[[', '"steps":[1,['),
    ],
)
def test_contents_that_no_conversation_has_are_refused_and_change_nothing(
    change, bounded, tmp_path
):
    talk = Conversation(bounded, max_tokens=5, seed=1)
    answer(talk, QUESTION)
    path = tmp_path / "talk.safetensors"
    save(talk, path)
    caches, metadata = load_cache(path)
    [(key, text)] = metadata.items()
    assert change[0] in text
    save_cache(path, caches, {key: text.replace(*change, 1)})
    before = list(talk.messages)
    with pytest.raises(UserError) as refusal:
        load(talk, path)
    assert refusal.value.code == ExitCode.USAGE
    assert "damaged" in str(refusal.value)
    assert talk.messages == before
    answer(talk, NEXT)
