"""The hub's real client against a loopback hub that fails in every way."""

from __future__ import annotations

import hashlib
import os
import threading
from functools import partial

import pytest
from huggingface_hub import constants

from h2o_pack.bundling.bundle import bundle
from h2o_pack.bundling.manifest import read
from h2o_pack.errors import ExitCode
from h2o_pack.hub.download import SUFFIX
from tests.bridge.bundling.sources import Bars, File, Model, remote, until
from tests.bridge.refusals import refused
from tests.bridge.trees import tree
from tests.hub import faults
from tests.hub.contents import large
from tests.messages import says

ID = "someone/tiny"
WEIGHTS = bytes(range(256)) * 64
HASH = hashlib.sha256(WEIGHTS).hexdigest()
FILES = {"config.json": '{"a": 1}', "model.safetensors": WEIGHTS, "sub/vocab.txt": "v"}
CDN = "/cdn/*"


@pytest.fixture
def repository(hub, monkeypatch):
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 500)  # what a drop loses at most
    return hub.add(ID, FILES)


@pytest.fixture
def package(tmp_path):
    (tmp_path / "package").mkdir()
    return tmp_path / "package"


refusal = partial(refused, bundle, code=ExitCode.MODEL)


def partials(hub):
    return sorted(hub.client.cache.rglob("*" + SUFFIX))


def whole(package):
    return (package / "Model/model.safetensors").read_bytes() == WEIGHTS


def test_a_model_comes_from_the_hub_at_its_commit(hub, repository, package):
    model = remote(repository)
    repository.commit({**FILES, "config.json": "later"})
    say = Bars()
    manifest = bundle(model, package, say)
    written = tree(package / "Model")
    assert (written["config.json"], written["sub/vocab.txt"]) == ('{"a": 1}', "v")
    assert whole(package)
    assert manifest == read(package)
    assert (manifest.model, manifest.commit) == (ID, model.commit)
    total = sum(file.size for file in model.files)
    assert say.bars == {f"downloading {ID}": (total, total), f"bundling {ID}": (total, total)}


def test_only_the_models_own_files_are_fetched(hub, repository, package):
    bundle(remote(repository, "config.json"), package)
    assert {each.path.rpartition("/")[2] for each in hub.requests} == {"config.json"}


def test_the_weights_are_a_copy_of_the_hubs_blob_and_the_cache_is_the_clients_own(
    hub, repository, package
):
    bundle(remote(repository), package)
    blob = hub.client.cache / "models--someone--tiny" / "blobs" / HASH
    assert blob.read_bytes() == WEIGHTS
    assert not (package / "Model/model.safetensors").samefile(blob)
    from huggingface_hub import snapshot_download

    before = len(hub.requests)
    snapshot_download(ID, revision=repository.refs["main"])
    assert {each.path.split("/")[-2] for each in hub.requests[before:]} <= {"tree"}


def test_what_the_cache_has_is_not_asked_for_again(hub, repository, package, tmp_path):
    bundle(remote(repository), package)
    before = len(hub.requests)
    (tmp_path / "again").mkdir()
    bundle(remote(repository), tmp_path / "again")
    assert len(hub.requests) == before


def test_a_token_goes_to_the_hub_and_not_to_the_cdn(hub, package, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_yes")
    bundle(remote(hub.add(ID, FILES, private=True, token=os.environ["HF_TOKEN"])), package)
    given = {each.path.startswith("/cdn/"): each.authorization for each in hub.requests}
    assert given == {True: "", False: "Bearer hf_yes"}


@pytest.mark.parametrize("drops", [1, 5])
def test_dropped_connections_are_continued(hub, repository, package, drops):
    hub.fail(CDN, faults.Drop(after=1000), method="GET", numbers=range(drops))
    bundle(remote(repository), package)
    assert whole(package)
    ranges = [each.range for each in hub.asked("GET", "model.safetensors")]
    assert ranges == ["", *(f"bytes={1000 * n}-" for n in range(1, drops + 1))]


def test_a_later_run_continues_where_an_earlier_one_gave_up(hub, repository, package, tmp_path):
    hub.fail(CDN, faults.Drop(after=1000), numbers=range(1))
    hub.fail(CDN, faults.Status(500), numbers=range(1, 2))
    said = refusal(remote(repository), package, code=ExitCode.NETWORK)
    says(said)
    assert [path.stat().st_size for path in partials(hub)] == [1000]
    (tmp_path / "again").mkdir()
    say = Bars()
    bundle(remote(repository), tmp_path / "again", say)
    assert whole(tmp_path / "again")
    assert hub.asked("GET", "model.safetensors")[-1].range == "bytes=1000-"
    assert partials(hub) == []
    assert say.bars[f"downloading {ID}"] == (len(WEIGHTS) + 1, len(WEIGHTS) + 1)


def test_a_hub_that_ignores_ranges_sends_the_file_anew(hub, repository, package):
    hub.fail(CDN, faults.Drop(after=1000), numbers=range(1))
    hub.fail(CDN, faults.IgnoreRange(), numbers=range(1, 2))
    say = Bars()
    bundle(remote(repository), package, say)
    assert whole(package)
    assert len(set(say.bars[f"downloading {ID}"])) == 1


@pytest.mark.parametrize("numbers", [range(1), range(1, 2)])
def test_other_bytes_are_refused_and_nothing_of_them_stays(
    hub, repository, package, tmp_path, numbers
):
    hub.fail(CDN, faults.Drop(after=1000), numbers=range(1) if numbers.start else range(0))
    hub.fail(CDN, faults.Other(large(b"x" * len(WEIGHTS))), numbers=numbers)
    said = refusal(remote(repository), package, code=ExitCode.NETWORK)
    says(said)
    assert partials(hub) == []
    assert not list(hub.client.cache.rglob(HASH))
    (tmp_path / "again").mkdir()
    bundle(remote(repository), tmp_path / "again")
    assert whole(tmp_path / "again")


@pytest.mark.parametrize(
    ("start", "ranges"),
    [(bytes(1000), ["bytes=1000-", ""]), (WEIGHTS + b"more", [""])],  # as after a power failure
)
def test_a_wrong_start_from_an_earlier_run_is_fetched_anew(
    hub, repository, package, start, ranges
):
    blobs = hub.client.cache / "models--someone--tiny" / "blobs"
    blobs.mkdir(parents=True)
    (blobs / f"{HASH}{SUFFIX}").write_bytes(start)
    bundle(remote(repository), package)
    assert whole(package)
    assert [each.range for each in hub.asked("GET", "model.safetensors")] == ranges


def test_a_range_that_begins_elsewhere_is_seen(hub, repository, package):
    hub.fail(CDN, faults.Drop(after=1000), numbers=range(1))
    hub.fail(CDN, faults.ShiftRange(by=10), numbers=range(1, 2))
    assert "model.safetensors" in refusal(remote(repository), package, code=ExitCode.NETWORK)
    assert not (package / "Model").exists()


@pytest.mark.parametrize(
    "effect",
    [
        faults.Truncate(to=1000),
        faults.SayLength(1000),
        faults.SayLength(len(WEIGHTS) + 10),
        faults.Drop(after=0),
    ],
)
def test_a_wrong_length_is_an_error_and_never_a_short_file(hub, repository, package, effect):
    hub.fail(CDN, effect, method="GET")
    said = refusal(remote(repository), package, code=ExitCode.NETWORK)
    assert ID in said
    assert not list(hub.client.cache.rglob(HASH))


def test_a_small_file_that_is_cut_is_an_error(hub, repository, package):
    hub.fail("*/config.json", faults.Truncate(to=3), method="GET")
    said = refusal(remote(repository), package, code=ExitCode.NETWORK)
    assert "cannot be fetched: Consistency check failed" in said


def test_a_small_file_with_other_bytes_is_refused_and_removed(hub, repository, package):
    hub.fail("*/config.json", faults.Other(large(b'{"b": 1}')), numbers=range(2), method="GET")
    said = refusal(remote(repository), package)
    says(said)


def test_a_repository_that_changes_between_requests_is_never_mixed(
    hub, repository, package, tmp_path
):
    model = remote(repository)
    other = dict.fromkeys(FILES, b"other")
    hub.fail("*", faults.Before(lambda: repository.commit(other)), numbers=range(1, 2))
    bundle(model, package)
    assert whole(package)
    assert tree(package / "Model")["config.json"] == '{"a": 1}'


def test_a_commit_whose_content_changed_is_refused(hub, repository, package):
    model = remote(repository)
    files = repository.commits[model.commit]
    hub.fail(
        "*",
        faults.Before(lambda: files.update({"model.safetensors": large(b"x")})),
        numbers=range(2),
    )
    said = refusal(model, package)
    says(said)


def test_a_commit_that_went_away_is_refused(hub, repository, package):
    model = remote(repository)
    del repository.commits[model.commit]
    says(refusal(model, package))


def test_a_size_that_the_hub_lies_about_is_refused(hub, package):
    lying = large(WEIGHTS, says_size=len(WEIGHTS) + 1)
    model = remote(hub.add(ID, {"model.safetensors": lying}))
    assert "model.safetensors" in refusal(model, package, code=ExitCode.NETWORK)


@pytest.mark.parametrize(
    ("status", "error", "code", "words"),
    [
        (401, "GatedRepo", ExitCode.MODEL, "asks for its license to be accepted. Accept it at"),
        (403, "GatedRepo", ExitCode.MODEL, "asks for its license"),
        (401, "RepoNotFound", ExitCode.MODEL, "is not on the hub, or is private"),
        (401, "", ExitCode.MODEL, "may not be read: the hub answers"),
        (403, "", ExitCode.MODEL, "may not be read: the hub answers"),
        (404, "RepoNotFound", ExitCode.MODEL, "is not on the hub"),
        (404, "EntryNotFound", ExitCode.MODEL, "lacks a file"),
        (429, "", ExitCode.NETWORK, "too many requests (429)"),
        (503, "", ExitCode.NETWORK, "the hub answers 503"),
    ],
)
def test_an_answer_that_refuses_is_explained(
    hub, repository, package, status, error, code, words
):
    hub.fail(f"/{ID}/*", faults.Status(status, {"Retry-After": "1"}, error))
    assert words in refusal(remote(repository), package, code=code)


def test_a_new_address_is_asked_for_when_the_signed_one_has_expired(hub, repository, package):
    hub.fail(CDN, faults.Drop(after=1000), numbers=range(1))
    hub.fail(CDN, faults.Status(403), numbers=range(1, 2))
    bundle(remote(repository), package)
    assert whole(package)
    assert hub.asked("GET", "model.safetensors")[-1].range == "bytes=1000-"
    assert len(hub.asked("HEAD", "model.safetensors")) == 3  # twice, and once by the client


def test_an_address_that_never_works_is_not_asked_for_for_ever(hub, repository, package):
    hub.fail(CDN, faults.Status(403))
    said = refusal(remote(repository), package)
    says(said)


@pytest.mark.parametrize(("busy", "status"), [(f"/{ID}/*", 429), (f"/{ID}/*", 503), (CDN, 429)])
def test_a_busy_server_is_asked_again(hub, repository, package, busy, status):
    hub.fail(busy, faults.Status(status, {"Retry-After": "3"}), numbers=range(2))
    bundle(remote(repository), package)
    assert whole(package)
    assert hub.client.waits


def test_a_hub_that_is_gone_is_explained(hub, repository, package):
    model = remote(repository)
    hub.http.server_close()
    hub.http.shutdown()
    said = refusal(model, package, code=ExitCode.NETWORK)
    says(said)


def test_without_a_network_the_cache_is_enough(hub, repository, package, tmp_path, monkeypatch):
    bundle(remote(repository), package)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    (tmp_path / "again").mkdir()
    bundle(remote(repository), tmp_path / "again")
    (tmp_path / "third").mkdir()
    other = hub.add("someone/other", FILES)
    said = refusal(remote(other), tmp_path / "third", code=ExitCode.NETWORK)
    says(said)


@pytest.mark.parametrize("how", ["bytes", "size"])
def test_a_damaged_copy_in_the_cache_is_refused_and_removed(
    hub, repository, package, tmp_path, how
):
    bundle(remote(repository), package)
    blob = hub.client.cache / "models--someone--tiny" / "blobs" / HASH
    content = bytearray(WEIGHTS)
    content[77] ^= 1
    blob.write_bytes(content if how == "bytes" else WEIGHTS[:-1])
    (tmp_path / "again").mkdir()
    said = refusal(remote(repository), tmp_path / "again")
    says(said)
    assert not blob.exists()
    (tmp_path / "third").mkdir()
    bundle(remote(repository), tmp_path / "third")
    assert whole(tmp_path / "third")


def test_a_cache_that_cannot_be_written_is_explained(hub, repository, package):
    hub.client.home.mkdir(exist_ok=True)
    hub.client.cache.write_text("a file in the way")
    said = refusal(remote(repository), package, code=ExitCode.OUTPUT)
    says(said)


def test_a_full_disk_is_explained_and_what_arrived_stays(
    hub, repository, package, tmp_path, monkeypatch
):
    from h2o_pack.hub.download import Partial

    write = Partial.write

    def full(self, piece):
        if self.size >= 2000:
            raise OSError(28, "No space left on device", str(self.path))
        return write(self, piece)

    monkeypatch.setattr(Partial, "write", full)
    said = refusal(remote(repository), package, code=ExitCode.OUTPUT)
    says(said)
    monkeypatch.setattr(Partial, "write", write)
    assert [path.stat().st_size for path in partials(hub)] == [2000]


def test_a_second_download_of_a_blob_waits_for_the_first(hub, repository, tmp_path):
    hub.fail(CDN, faults.Hold(after=1000), numbers=range(1))
    folders = [tmp_path / "one", tmp_path / "two"]
    says = [Bars(), Bars()]
    threads = []
    for folder, say in zip(folders, says, strict=True):
        folder.mkdir()
        arguments = (remote(repository), folder, say)
        threads.append(threading.Thread(target=bundle, args=arguments))
    threads[0].start()
    assert hub.holding.wait(60)
    threads[1].start()
    until(lambda: says[1].lines)
    hub.go_on.set()
    for thread in threads:
        thread.join(60)
    assert says[1].lines == ["waiting for another download of model.safetensors"]
    assert all(map(whole, folders))
    assert len([each for each in hub.requests if each.path.startswith("/cdn/")]) == 1


def test_two_files_of_one_content_are_fetched_once(hub, package):
    files = {"model-1.safetensors": WEIGHTS, "model-2.safetensors": WEIGHTS}
    bundle(remote(hub.add(ID, files)), package)
    assert len([each for each in hub.requests if each.path.startswith("/cdn/")]) == 1
    assert sorted(tree(package / "Model")) == ["manifest.json", *sorted(files)]


@pytest.mark.parametrize("path", ["../../evil.json", "/evil.json", "a/../../../evil", "x\0y"])
def test_a_hostile_listing_is_refused_before_anything_is_fetched(hub, package, tmp_path, path):
    model = Model(ID, (File(path, 1),), commit="0" * 40)
    refusal(model, package)
    assert hub.requests == []
    assert not list(tmp_path.rglob("*evil*"))
