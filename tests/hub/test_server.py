"""The loopback hub against the real client: what holds here holds for its users' tests."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub import HfApi, constants, hf_hub_download, snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from tests.hub import faults
from tests.hub.contents import large, sparse
from tests.hub.fixture import unused_port

ID = "someone/tiny"
TOKEN, OTHER_TOKEN = "hf_yes", "hf_other"
WEIGHTS = bytes(range(256)) * 64
FILES = {"config.json": '{"a": 1}', "model.safetensors": WEIGHTS, "sub/b.txt": "b"}


def test_metadata_lists_sizes_and_hashes_as_git_and_lfs_have_them(hub):
    commit = hub.add(ID, FILES).refs["main"]
    info = HfApi().model_info(ID, files_metadata=True)
    found = {each.rfilename: each for each in info.siblings}
    assert info.sha == commit
    assert (found["config.json"].size, found["config.json"].lfs) == (8, None)
    assert found["config.json"].blob_id == "4a036f56bb619924ec4189bd84ed716c766971ae"
    assert found["model.safetensors"].lfs.sha256 == hashlib.sha256(WEIGHTS).hexdigest()
    assert found["model.safetensors"].size == len(WEIGHTS)
    assert HfApi().model_info(ID, revision=commit).siblings[0].size is None


@pytest.mark.parametrize("page", [1, 2, 1000])
def test_a_tree_is_listed_in_pages(hub, page):
    hub.add(ID, FILES)
    hub.page = page
    paths = [each.path for each in HfApi().list_repo_tree(ID, recursive=True)]
    assert paths == ["config.json", "model.safetensors", "sub", "sub/b.txt"]
    assert [each.path for each in HfApi().list_repo_tree(ID)] == paths[:3]
    assert [each.path for each in HfApi().list_repo_tree(ID, "sub")] == ["sub/b.txt"]
    assert HfApi().get_paths_info(ID, ["sub/b.txt", "none"])[0].size == 1


def test_a_snapshot_holds_the_files_as_committed_and_no_token_goes_to_the_cdn(hub):
    hub.add(ID, FILES, private=True, token=TOKEN)
    folder = Path(snapshot_download(ID, token=TOKEN))
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    assert (folder / "sub/b.txt").read_text() == "b"
    assert hub.client.cache in folder.parents
    given = {each.path[:5]: each.authorization for each in hub.requests}
    assert given == {"/api/": f"Bearer {TOKEN}", f"/{ID}"[:5]: f"Bearer {TOKEN}", "/cdn/": ""}


def test_branches_tags_and_commits_name_a_state(hub):
    repository = hub.add(ID, {"a.txt": "one"})
    first = repository.refs["main"]
    repository.refs["v1"] = first
    repository.commit({"a.txt": "two"})
    texts = [
        Path(hf_hub_download(ID, "a.txt", revision=revision)).read_text()
        for revision in ("main", "v1", first)
    ]
    assert texts == ["two", "one", "one"]
    with pytest.raises(RevisionNotFoundError):
        HfApi().model_info(ID, revision="nowhere")


def test_a_dropped_connection_is_resumed_where_it_broke(hub, monkeypatch):
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 500)  # what a drop loses at most
    hub.add(ID, FILES)
    hub.fail("/cdn/*", faults.Drop(after=1000), method="GET", numbers=range(2))
    path = Path(hf_hub_download(ID, "model.safetensors"))
    assert path.read_bytes() == WEIGHTS
    ranges = [each.range for each in hub.asked("GET", "model.safetensors")]
    assert ranges == ["", "bytes=1000-", "bytes=2000-"]
    assert hub.client.waits == [1, 1]


def test_too_short_an_answer_is_the_clients_error(hub):
    hub.add(ID, FILES)
    hub.fail("/cdn/*", faults.Truncate(to=1000))
    with pytest.raises(OSError, match="Consistency check failed"):
        hf_hub_download(ID, "model.safetensors")


def test_a_length_that_is_a_lie_is_the_clients_error(hub):
    hub.add(ID, FILES)
    hub.fail("/cdn/*", faults.SayLength(len(WEIGHTS) + 10))
    with pytest.raises(Exception, match="peer closed connection"):
        hf_hub_download(ID, "model.safetensors")


def test_other_bytes_pass_the_client_unseen(hub):
    hub.add(ID, FILES)
    hub.fail("/cdn/*", faults.Other(large(b"x" * len(WEIGHTS))))
    assert Path(hf_hub_download(ID, "model.safetensors")).read_bytes() != WEIGHTS


def test_ranges_may_be_ignored_or_wrong(hub):
    hub.add(ID, FILES)
    hub.fail("/cdn/*", faults.Drop(after=1000), numbers=range(1))
    hub.fail("/cdn/*", faults.IgnoreRange(), numbers=range(1, 2))
    assert Path(hf_hub_download(ID, "model.safetensors")).read_bytes() == WEIGHTS


@pytest.mark.parametrize("code", [429, 503])
def test_a_busy_hub_is_asked_again(hub, code):
    hub.add(ID, FILES)
    busy = faults.Status(code, {"Retry-After": "7"})
    hub.fail("*/tree/*", busy, numbers=range(2))
    assert len(list(HfApi().list_repo_tree(ID))) == 3
    assert hub.client.waits == [8, 8]


def test_what_may_not_be_read_is_refused_as_the_hub_does(hub):
    hub.add("someone/gated", FILES, gated=True, token=TOKEN)
    hub.add("someone/private", FILES, private=True, token=TOKEN)
    with pytest.raises(RepositoryNotFoundError):
        HfApi().model_info("someone/missing")
    with pytest.raises(RepositoryNotFoundError):
        HfApi().model_info("someone/private")
    assert HfApi().model_info("someone/gated").gated == "manual"
    with pytest.raises(GatedRepoError):
        hf_hub_download("someone/gated", "config.json")
    with pytest.raises(GatedRepoError):
        hf_hub_download("someone/gated", "config.json", token=OTHER_TOKEN)
    assert hf_hub_download("someone/gated", "config.json", token=TOKEN)
    hub.fail("/someone/gated/*", faults.Status(401))
    with pytest.raises(HfHubHTTPError, match="401"):
        hf_hub_download("someone/gated", "config.json", revision="x", token=TOKEN)


def test_a_moved_repository_is_found_at_its_new_name(hub):
    hub.add("someone/old", FILES, moved_to=ID)
    hub.add(ID, FILES)
    assert HfApi().model_info("someone/old").id == ID
    assert Path(hf_hub_download("someone/old", "config.json")).read_text() == '{"a": 1}'


def test_a_file_can_change_between_two_requests(hub):
    repository = hub.add(ID, FILES)
    other = {**FILES, "model.safetensors": b"new"}
    hub.fail("/someone/*", faults.Before(lambda: repository.commit(other)), numbers=range(1, 2))
    first = hf_hub_download(ID, "config.json")
    second = hf_hub_download(ID, "model.safetensors")
    assert Path(first).parent.name != Path(second).parent.name


def test_large_sparse_files_are_sent_from_disk(hub, tmp_path):
    content = sparse(tmp_path / "source", 5_000_000, b"head")
    hub.add(ID, {"model.safetensors": content})
    got = Path(hf_hub_download(ID, "model.safetensors"))
    assert got.stat().st_size == 5_000_000
    assert (tmp_path / "source").stat().st_blocks * 512 < 100_000


def test_a_held_answer_can_be_waited_for_and_its_client_killed(hub):
    hub.add(ID, FILES)
    hub.fail("/cdn/*", faults.Hold(after=1000), numbers=range(1))
    program = (
        "import huggingface_hub as h; h.hf_hub_download('someone/tiny', 'model.safetensors')"
    )
    client = subprocess.Popen([sys.executable, "-c", program], env=hub.client.environment())
    assert hub.holding.wait(60)
    client.kill()
    assert client.wait() == -9
    hub.go_on.set()
    assert Path(hf_hub_download(ID, "model.safetensors")).read_bytes() == WEIGHTS


def test_a_hub_that_cannot_be_reached_is_an_error_of_its_own(hub, monkeypatch):
    nobody = f"http://127.0.0.1:{unused_port()}"
    monkeypatch.setattr(constants, "ENDPOINT", nobody)
    monkeypatch.setattr(
        constants,
        "HUGGINGFACE_CO_URL_TEMPLATE",
        nobody + "/{repo_id}/resolve/{revision}/{filename}",
    )
    with pytest.raises(LocalEntryNotFoundError):
        hf_hub_download(ID, "config.json")
