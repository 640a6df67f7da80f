"""Models of the hub, described by the real client without their weights."""

import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from huggingface_hub import constants, snapshot_download

from h2o_pack.errors import ExitCode
from h2o_pack.files.paths import CACHE_VARIABLE
from h2o_pack.model import ModelFile
from tests.bridge.models.checkpoints import (
    ALL,
    TENSORS,
    checkpoint,
    index,
    repository,
    sparse_checkpoint,
)
from tests.bridge.trees import resolve
from tests.hub import faults
from tests.hub.repository import Content, large
from tests.messages import refused, says

ID = "someone/tiny"
TOKEN = "hf_yes"  # noqa: S105


refusal = partial(refused, resolve, code=ExitCode.MODEL)


def bytes_sent(hub) -> list[str]:
    """Return the ranges of weights that were asked for, where they are sent from."""
    return [request.range for request in hub.requests if request.path.startswith("/cdn/")]


def test_a_model_is_described_by_its_config_its_listing_and_two_ranges(hub):
    commit = hub.add(ID, repository()).refs["main"]
    model = resolve(ID)
    assert (model.id, model.commit, model.folder) == (ID, commit, None)
    assert [file.path for file in model.files] == [
        "README.md",
        "config.json",
        "model.safetensors",
        "tokenizer.json",
    ]
    data = large(checkpoint())
    assert model.files[2] == ModelFile("model.safetensors", data.size, data.sha256)
    assert model.files[0].sha256 == ""
    assert (model.weights.bytes, model.weights.tied_embeddings) == (ALL, True)
    header = int.from_bytes(checkpoint()[:8], "little")
    assert bytes_sent(hub) == ["bytes=0-7", f"bytes=8-{7 + header}"]
    assert not any("README" in request.path for request in hub.requests)


def test_a_second_look_costs_one_small_request_and_a_pinned_one_none(hub):
    commit = hub.add(ID, repository()).refs["main"]
    first = resolve(ID)
    hub.requests.clear()
    assert resolve(ID) == first
    assert [(request.method, request.path) for request in hub.requests] == [
        ("HEAD", f"/{ID}/resolve/main/config.json")
    ]
    hub.requests.clear()
    assert resolve(f"{ID}@{commit}") == resolve(ID, revision=commit) == first
    assert hub.requests == []


def test_a_branch_that_moved_is_described_anew(hub):
    repo = hub.add(ID, repository())
    assert len(resolve(ID).config.layers) == 2
    repo.commit(repository(num_hidden_layers=3))
    model = resolve(ID)
    assert (len(model.config.layers), model.commit) == (3, repo.refs["main"])


def test_branches_tags_and_commits_can_be_asked_for(hub):
    repo = hub.add(ID, repository(num_hidden_layers=1))
    first = repo.refs["main"]
    repo.refs["v1.0"] = first
    repo.commit(repository(num_hidden_layers=4), "dev")
    depths = [len(resolve(f"{ID}@{r}").config.layers) for r in ("v1.0", "dev", first)]
    assert depths == [1, 4, 1]
    says(refusal(f"{ID}@v2"))


DAMAGES = {
    "empty": lambda _text: "",
    "other JSON": lambda _text: "{}",
    "no JSON": lambda _text: "x",
    "half": lambda text: text[: len(text) // 2],
    "altered": lambda text: text.replace('"num_hidden_layers":2', '"num_hidden_layers":3'),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_entry_of_the_cache_is_fetched_again(hub, damage):
    hub.add(ID, repository())
    first = resolve(ID)
    (entry,) = hub.client.home.glob("h2o-pack/metadata/*/*/*.json")
    content = entry.read_text()
    entry.write_text(DAMAGES[damage](content))
    assert entry.read_text() != content
    hub.requests.clear()
    assert resolve(ID) == first
    assert bytes_sent(hub) != []
    assert entry.read_text() == content


def test_a_cache_that_cannot_be_written_is_no_obstacle(hub, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "file"))
    hub.add(ID, repository())
    assert resolve(ID).weights.bytes == ALL


def test_offline_what_was_described_before_is_known(hub, monkeypatch):
    hub.add(ID, repository())
    first = resolve(ID)
    hub.requests.clear()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert resolve(ID) == first
    assert hub.requests == []


def test_offline_a_model_in_the_hubs_own_cache_is_read_from_there(hub, monkeypatch):
    commit = hub.add(ID, repository()).refs["main"]
    folder = Path(snapshot_download(ID))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    model = resolve(ID)
    assert (model.id, model.commit, model.folder) == (ID, commit, folder)
    assert model.weights.bytes == ALL


def test_offline_a_cache_without_branches_names_the_commit_that_it_has(hub, monkeypatch):
    commit = hub.add(ID, repository()).refs["main"]
    folder = Path(snapshot_download(ID))
    shutil.rmtree(folder.parents[1] / "refs")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    says(refusal(ID).replace(commit, "COMMIT"))
    assert resolve(f"{ID}@{commit}").folder == folder


def test_offline_an_unknown_model_is_refused_with_what_to_do(hub, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    says(refusal(ID, code=ExitCode.NETWORK))


def test_a_downloaded_model_lies_in_its_folder_if_no_file_is_cut_short(hub):
    hub.add(ID, repository())
    folder = Path(snapshot_download(ID))
    assert resolve(ID).folder == folder
    weights = (folder / "model.safetensors").resolve()
    weights.write_bytes(weights.read_bytes()[:-1])
    assert resolve(ID).folder is None


@pytest.mark.parametrize("code", [429, 503])
def test_a_busy_hub_is_asked_again_and_then_named(hub, code):
    hub.add(ID, repository())
    busy = faults.Status(code, {"Retry-After": "5"})
    hub.fail("*/config.json", busy, numbers=range(2))
    hub.fail("/api/*", busy, numbers=range(1))
    hub.fail("/cdn/*", busy, numbers=range(1))
    assert resolve(ID).weights.bytes == ALL
    assert hub.client.waits == [5, 5, 5, 5]
    hub.fail("*", busy)
    says(refusal(f"{ID}@other", code=ExitCode.NETWORK))


@pytest.mark.parametrize(
    "fault", [faults.Drop(after=4), faults.Truncate(to=4), faults.SayLength(10_000)]
)
def test_a_connection_that_breaks_is_tried_again(hub, fault):
    hub.add(ID, repository())
    hub.fail("/cdn/*", fault, numbers=range(1))
    hub.fail("/api/*", faults.Drop(after=20), numbers=range(1))
    assert resolve(ID).weights.bytes == ALL


def test_a_connection_that_always_breaks_is_an_error_of_the_network(hub):
    hub.add(ID, repository())
    hub.fail("/cdn/*", faults.Drop(after=4))
    says(refusal(ID, code=ExitCode.NETWORK))


def test_a_hub_that_ignores_ranges_is_cut_off_before_the_weights(hub, tmp_path):
    """Hours would be needed to read them all."""
    tensors = {**TENSORS, "model.big": ("U8", [1 << 43])}
    weights = replace(sparse_checkpoint(tmp_path / "weights", tensors), known_sha256="0" * 64)
    hub.add(ID, {**repository(), "model.safetensors": weights})
    hub.fail("/cdn/*", faults.IgnoreRange())
    assert resolve(ID).weights.bytes == ALL + (1 << 43)


def test_other_bytes_than_those_asked_for_are_refused(hub):
    hub.add(ID, repository())
    hub.fail("/cdn/*", faults.ShiftRange(by=1))
    says(refusal(ID, code=ExitCode.NETWORK))


def test_a_model_that_may_not_be_read_says_how_to_get_access(hub, monkeypatch):
    hub.add("someone/gated", repository(), gated=True, token=TOKEN)
    hub.add("someone/private", repository(), private=True, token=TOKEN)
    says(refusal("someone/gated"))
    says(refusal("someone/private"))
    hub.fail("/someone/gated/*", faults.Status(403), numbers=range(1))
    says(refusal("someone/gated"))
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    for name in ("someone/gated", "someone/private"):
        assert resolve(name).weights.bytes == ALL
    credentials = {
        request.authorization for request in hub.requests if request.path.startswith("/cdn/")
    }
    assert credentials == {""}


def test_an_id_that_is_nowhere_is_answered_with_the_nearest(hub):
    says(refusal("mlx-community/Qwen3-4B-4bits"))


def test_an_unsupported_architecture_is_refused_before_headers_are_read(hub):
    hub.add(ID, repository(model_type="gemma2"))
    message = refusal(ID)
    assert 'model_type "gemma2" is not supported: mlx-swift-lm makes its mask' in message
    assert bytes_sent(hub) == []


@pytest.mark.parametrize(
    "name", ["../model.safetensors", "/etc/passwd", "a\\b", "a\0b", "a/../../b", "C:/x"]
)
def test_a_listing_with_a_path_that_leads_elsewhere_is_refused(hub, name):
    hub.add(ID, {**repository(), name: b"x"})
    says(refusal(ID))


def test_several_missing_files_are_told_together(hub):
    hub.add(ID, {"config.json": "{}"})
    says(refusal(ID))


def test_a_large_config_is_not_fetched(hub):
    hub.add(ID, {**repository(), "config.json": Content(b"{" + b" " * (10 << 20) + b"}")})
    says(refusal(ID))
    assert hub.asked("GET", "config.json") == []


def test_weights_in_several_files_add_up(hub):
    first, second = ({f"model.{name}": ("F32", [2])} for name in "ab")
    files = repository(first)
    files["model-1.safetensors"] = files.pop("model.safetensors")
    files["model-2.safetensors"] = checkpoint(second)
    files["model.safetensors.index.json"] = index(model_1=first, model_2=second)
    hub.add(ID, files)
    assert resolve(ID).weights.bytes == 16


def test_an_index_that_names_a_file_that_is_not_there_is_refused(hub):
    stale = index(model_3={"model.a": ("F32", [2])})
    hub.add(ID, {**repository(), "model.safetensors.index.json": stale})
    says(refusal(ID))
    assert hub.asked("GET", ".safetensors") == []


def test_a_moved_model_is_found_at_its_new_name(hub):
    hub.add("someone/old", repository(), moved_to=ID)
    hub.add(ID, repository())
    assert resolve("someone/old").weights.bytes == ALL


def test_a_branch_that_moves_meanwhile_does_not_mix_two_states(hub):
    repo = hub.add(ID, repository())
    before = repo.refs["main"]
    newer = repository({**TENSORS, "model.more": ("F32", [8])}, num_hidden_layers=7)
    hub.fail("/api/*", faults.Before(lambda: repo.commit(newer)), numbers=range(1))
    model = resolve(ID)
    assert (model.commit, model.weights.bytes, len(model.config.layers)) == (before, ALL, 2)
