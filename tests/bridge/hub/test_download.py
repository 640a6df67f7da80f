"""The hub's real client against a loopback hub that fails in every way, and lies."""

import hashlib
import os
import threading
from contextlib import suppress
from functools import partial
from itertools import product

import pytest
from huggingface_hub import constants, snapshot_download
from huggingface_hub.hf_api import BlobLfsInfo, RepoSibling

from h2o_pack.bundling.bundle import bundle
from h2o_pack.errors import ExitCode, Problems, UserError
from h2o_pack.hub import client as answers
from h2o_pack.hub import download
from h2o_pack.hub.client import Repository
from h2o_pack.hub.download import SUFFIX
from h2o_pack.hub.resolve import needed
from tests.bridge.bundling.sources import Bars, File, Model, remote, until
from tests.bridge.trees import tree, write_model
from tests.hub import faults
from tests.hub.fixture import HubClient, use
from tests.hub.repository import Content, large
from tests.hub.server import HubServer
from tests.messages import refused, says
from tests.nightly import nightly_except

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
    contents = tree(package / "Model")
    assert (contents["config.json"], contents["sub/vocab.txt"]) == ('{"a": 1}', "v")
    assert whole(package)
    assert (manifest.model, manifest.commit) == (ID, model.commit)
    total = sum(file.size for file in model.files)
    assert say.bars == {f"downloading {ID}": (total, total), f"bundling {ID}": (total, total)}


def test_only_the_models_own_files_are_fetched(hub, repository, package):
    bundle(remote(repository, "config.json"), package)
    assert {request.path.rpartition("/")[2] for request in hub.requests} == {"config.json"}


def test_the_weights_are_a_copy_of_the_hubs_blob_and_the_cache_is_the_clients_own(
    hub, repository, package
):
    bundle(remote(repository), package)
    blob = hub.client.cache / "models--someone--tiny" / "blobs" / HASH
    assert blob.read_bytes() == WEIGHTS
    assert not (package / "Model/model.safetensors").samefile(blob)
    assert not any(path.is_symlink() for path in (package / "Model").rglob("*"))
    before = len(hub.requests)
    snapshot_download(ID, revision=repository.refs["main"])
    assert {request.path.split("/")[-2] for request in hub.requests[before:]} <= {"tree"}


def test_a_token_goes_to_the_hub_and_not_to_the_cdn(hub, package, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_yes")
    bundle(remote(hub.add(ID, FILES, private=True, token=os.environ["HF_TOKEN"])), package)
    tokens = {
        request.path.startswith("/cdn/"): request.authorization for request in hub.requests
    }
    assert tokens == {True: "", False: "Bearer hf_yes"}


@pytest.mark.parametrize("drops", [1, 5])
def test_dropped_connections_are_continued(hub, repository, package, drops):
    hub.fail(CDN, faults.Drop(after=1000), method="GET", numbers=range(drops))
    bundle(remote(repository), package)
    assert whole(package)
    ranges = [request.range for request in hub.asked("GET", "model.safetensors")]
    assert ranges == ["", *(f"bytes={1000 * n}-" for n in range(1, drops + 1))]


def test_a_later_run_continues_where_an_earlier_one_gave_up(hub, repository, package, tmp_path):
    hub.fail(CDN, faults.Drop(after=1000), numbers=range(1))
    hub.fail(CDN, faults.Status(500), numbers=range(1, 2))
    says(refusal(remote(repository), package, code=ExitCode.NETWORK))
    assert [path.stat().st_size for path in partials(hub)] == [1000]
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
    says(refusal(remote(repository), package, code=ExitCode.NETWORK))
    assert partials(hub) == []
    assert not list(hub.client.cache.rglob(HASH))
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
    assert [request.range for request in hub.asked("GET", "model.safetensors")] == ranges


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
    message = refusal(remote(repository), package, code=ExitCode.NETWORK)
    assert ID in message
    assert not list(hub.client.cache.rglob(HASH))


def test_a_small_file_with_other_bytes_is_refused_and_removed(hub, repository, package):
    hub.fail("*/config.json", faults.Other(large(b'{"b": 1}')), numbers=range(2), method="GET")
    says(refusal(remote(repository), package))


def test_a_commit_whose_content_changed_is_refused(hub, repository, package):
    model = remote(repository)
    files = repository.commits[model.commit]
    hub.fail(
        "*",
        faults.Before(lambda: files.update({"model.safetensors": large(b"x")})),
        numbers=range(2),
    )
    says(refusal(model, package))


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
        (401, "GatedRepo", ExitCode.MODEL, "accept its license. Accept the license at"),
        (403, "GatedRepo", ExitCode.MODEL, "to accept its license"),
        (401, "RepoNotFound", ExitCode.MODEL, "is not on the hub, or is private"),
        (401, "", ExitCode.MODEL, "cannot be read: the hub refuses access"),
        (403, "", ExitCode.MODEL, "cannot be read: the hub refuses access"),
        (404, "RepoNotFound", ExitCode.MODEL, "is not on the hub"),
        (404, "EntryNotFound", ExitCode.MODEL, "lacks a file"),
        (429, "", ExitCode.NETWORK, "the hub refuses more requests for now (429)"),
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
    says(refusal(remote(repository), package))


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
    says(refusal(model, package, code=ExitCode.NETWORK))


def test_without_a_network_the_cache_is_enough(hub, repository, package, tmp_path, monkeypatch):
    bundle(remote(repository), package)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    bundle(remote(repository), tmp_path / "again")
    second = hub.add("someone/other", FILES)
    says(refusal(remote(second), tmp_path / "third", code=ExitCode.NETWORK))


@pytest.mark.parametrize("damage", ["bytes", "size"])
def test_a_damaged_copy_in_the_cache_is_refused_and_removed(
    hub, repository, package, tmp_path, damage
):
    bundle(remote(repository), package)
    blob = hub.client.cache / "models--someone--tiny" / "blobs" / HASH
    content = bytearray(WEIGHTS)
    content[77] ^= 1
    blob.write_bytes(content if damage == "bytes" else WEIGHTS[:-1])
    says(refusal(remote(repository), tmp_path / "again"))
    assert not blob.exists()
    bundle(remote(repository), tmp_path / "third")
    assert whole(tmp_path / "third")


def test_a_cache_that_cannot_be_written_is_explained(hub, repository, package):
    hub.client.home.mkdir(exist_ok=True)
    hub.client.cache.write_text("a file in the way")
    says(refusal(remote(repository), package, code=ExitCode.OUTPUT))


def test_a_full_disk_is_explained_and_what_arrived_stays(hub, repository, package, monkeypatch):
    def full(_address, partial, **_options):
        partial.write(WEIGHTS[:2000])
        raise OSError(28, "No space left on device", partial.name)

    monkeypatch.setattr(download, "http_get", full)
    says(refusal(remote(repository), package, code=ExitCode.OUTPUT))
    assert [path.stat().st_size for path in partials(hub)] == [2000]


def test_a_second_download_of_a_blob_waits_for_the_first(hub, repository, tmp_path):
    hub.fail(CDN, faults.Hold(after=1000), numbers=range(1))
    folders = [tmp_path / "one", tmp_path / "two"]
    reporters = [Bars(), Bars()]
    threads = []
    for folder, say in zip(folders, reporters, strict=True):
        arguments = (remote(repository), folder, say)
        threads.append(threading.Thread(target=bundle, args=arguments))
    threads[0].start()
    assert hub.holding.wait(60)
    threads[1].start()
    until(lambda: reporters[1].lines)
    hub.go_on.set()
    for thread in threads:
        thread.join(60)
    assert reporters[1].lines == ["waiting for another download of model.safetensors"]
    assert all(map(whole, folders))
    assert len([request for request in hub.requests if request.path.startswith("/cdn/")]) == 1


def test_two_files_of_one_content_are_fetched_once(hub, package):
    files = {"model-1.safetensors": WEIGHTS, "model-2.safetensors": WEIGHTS}
    bundle(remote(hub.add(ID, files)), package)
    assert len([request for request in hub.requests if request.path.startswith("/cdn/")]) == 1
    assert sorted(tree(package / "Model")) == sorted(files)


@pytest.mark.parametrize("path", ["../../evil.json", "/evil.json", "a/../../../evil", "x\0y"])
def test_a_hostile_listing_is_refused_before_anything_is_fetched(hub, package, tmp_path, path):
    model = Model(ID, (File(path, 1),), commit="0" * 40)
    refusal(model, package)
    assert hub.requests == []
    assert not list(tmp_path.rglob("*evil*"))


# A hub that lies


def outside(hub, tmp_path):
    """Return what lies in the folder of the test, but for the hub's cache and the package."""
    own = (hub.client.home, tmp_path / "package")
    return [p for p in tmp_path.rglob("*") if not any(p == o or o in p.parents for o in own)]


HEADERS = list(
    product(
        ("ETag", "X-Linked-Etag", "X-Repo-Commit"),
        ("../../../../.zshenv", "/{home}/.zshenv", "a" * 39, "A" * 40),
    )
)


@pytest.mark.parametrize(("header", "value"), nightly_except(HEADERS[::5], HEADERS))
def test_a_header_of_the_hub_is_no_path(hub, repository, tmp_path, package, header, value):
    value = value.format(home=tmp_path)
    hub.fail(f"/{ID}/*/vocab.txt", faults.Instead(headers={header: value}))
    with suppress(UserError):  # a file that is not in LFS needs no X-Linked-Etag
        bundle(remote(repository), package)
    assert outside(hub, tmp_path) == []
    assert not list(hub.client.home.rglob("*zshenv*"))


@pytest.mark.parametrize("sha256", ["../../../evil", "0" * 63, "x" * 64, 7])
def test_a_hash_of_a_listing_is_no_path(sha256):
    problems = Problems()
    file = RepoSibling("model.safetensors", 5, lfs=BlobLfsInfo(5, sha256, 134))
    assert needed([file], problems) == {}
    assert "with an invalid sha256" in str(problems.found[0])


def test_an_answer_without_an_end_is_cut(hub, repository, package):
    endless = Content(b"x" * (3 << 20))
    hub.fail(f"/{ID}/*/config.json", faults.Instead(endless), method="GET")
    says(refusal(remote(repository), package, code=ExitCode.NETWORK))
    sizes = [path.stat().st_size for path in hub.client.home.rglob("*") if path.is_file()]
    assert max(sizes, default=0) < 2 << 20


def test_a_listing_without_an_end_is_cut(hub, repository, monkeypatch):
    monkeypatch.setattr(answers, "ANSWER_BYTES", 1000)
    hub.fail("/api/*", faults.Instead(Content(b"[" * (65 << 20))))
    says(refused(Repository(ID).listing, code=ExitCode.NETWORK))


def test_an_answer_that_drips_is_given_up(monkeypatch):
    clock = iter(range(0, 10_000, 2))
    monkeypatch.setattr(answers.time, "monotonic", lambda: next(clock))
    quick = answers.BoundedStream([b"x" * 4000] * 100, 1 << 20, "hub")
    assert len(b"".join(quick)) == 400_000
    dripping = answers.BoundedStream([b"x"] * 100, 1000, "hub")
    with pytest.raises(UserError, match="sends only 0 bytes per second"):
        list(dripping)


@pytest.mark.parametrize(
    "text", ["[]", "[" * 100_000, "no JSON", '{"siblings": 5}', '{"siblings": [5]}', "null"]
)
def test_a_listing_that_is_none_is_an_error_of_the_network(hub, repository, text):
    hub.fail("/api/*", faults.Instead(Content(text.encode())))
    says(refused(Repository(ID).listing, code=ExitCode.NETWORK))


def test_a_time_to_wait_of_5000_digits_is_not_read(hub, repository, package):
    wait = {"Retry-After": "9" * 5000}
    hub.fail("*", faults.Status(429, wait), numbers=range(1))
    assert bundle(remote(repository), package).model == ID


def test_compressed_bytes_are_refused(hub, repository, package):
    hub.fail(f"/{ID}/*", faults.Instead(headers={"Content-Encoding": "gzip"}), method="GET")
    says(refusal(remote(repository), package, code=ExitCode.NETWORK))


@pytest.mark.parametrize("name", ["LICENSE", "model.safetensors"])
def test_what_a_mirror_sent_is_not_taken_for_what_the_hub_sends(
    hub, run, tmp_path, monkeypatch, name
):
    """The mirror lists its own file at the commit, and both write to one cache."""
    folder = write_model(tmp_path / "model")
    files = {path.name: path.read_bytes() for path in folder.iterdir()} | {"LICENSE": b"free"}
    genuine = hub.add(ID, files)
    [commit] = genuine.commits
    changed = bytearray(files[name])
    changed[-1] ^= 1
    mirror = HubServer()
    theirs = mirror.add(ID, {**files, name: bytes(changed)})
    theirs.commits[commit] = theirs.commits.pop(theirs.refs["main"])
    theirs.refs["main"] = commit
    options = ("--model", ID, "--max-kv", 64, "--no-vendor", "--output")
    with monkeypatch.context() as patched:
        use(HubClient(mirror, hub.client.home, []), patched)
        assert run("ios", *options, tmp_path / "Mirror").exit_code == 0
    mirror.close()
    use(hub.client, monkeypatch)
    first = run("ios", *options, tmp_path / "Hub")
    if first.exit_code:  # the file in the cache was removed
        assert "h2o-pack has removed the damaged copy" in first.stderr
        assert not (tmp_path / "Hub").exists()
        assert run("ios", *options, tmp_path / "Hub").exit_code == 0
    assert (tmp_path / "Mirror/Model" / name).read_bytes() == bytes(changed)
    assert (tmp_path / "Hub/Model" / name).read_bytes() == files[name]
