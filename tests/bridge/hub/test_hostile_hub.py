"""A hub, or a mirror, that lies: its answers choose no path, have no end, and break nothing."""

from __future__ import annotations

import json
from contextlib import suppress
from functools import partial

import pytest

from h2o_pack.bundling.bundle import bundle
from h2o_pack.errors import ExitCode, Problems, UserError
from h2o_pack.hub import client as answers
from h2o_pack.hub.client import Listed, Repository
from h2o_pack.hub.contents import needed
from tests.bridge.bundling.sources import remote
from tests.bridge.refusals import refused
from tests.hub import faults
from tests.hub.contents import Content
from tests.messages import says

ID = "someone/tiny"
FILES = {"config.json": '{"a": 1}', "LICENSE": "free", "model.safetensors": b"w" * 5000}

refusal = partial(refused, bundle, code=ExitCode.NETWORK)


@pytest.fixture
def package(tmp_path):
    (tmp_path / "package").mkdir()
    return tmp_path / "package"


def outside(hub, tmp_path):
    """Return what lies in the folder of the test, but for the hub's cache and the package."""
    own = (hub.client.home, tmp_path / "package")
    return [p for p in tmp_path.rglob("*") if not any(p == o or o in p.parents for o in own)]


@pytest.mark.parametrize("header", ["ETag", "X-Linked-Etag", "X-Repo-Commit"])
@pytest.mark.parametrize(
    "value", ["../../../../.zshenv", "/{home}/.zshenv", "a" * 39, "A" * 40]
)
def test_a_header_of_the_hub_is_no_path(hub, tmp_path, package, header, value):
    repository = hub.add(ID, FILES)
    value = value.format(home=tmp_path)
    hub.fail(f"/{ID}/*/LICENSE", faults.Instead(headers={header: value}))
    with suppress(UserError):  # a file that is not in LFS needs no X-Linked-Etag
        bundle(remote(repository), package)
    assert outside(hub, tmp_path) == []
    assert not list(hub.client.home.rglob("*zshenv*"))


@pytest.mark.parametrize("sha256", ["../../../evil", "0" * 63, "x" * 64, 7])
def test_a_hash_of_a_listing_is_no_path(sha256):
    problems = Problems()
    assert needed((Listed("model.safetensors", 5, sha256),), problems) == {}
    assert "something else than a sha256" in str(problems.found[0])


def test_an_answer_without_an_end_is_cut(hub, tmp_path, package):
    repository = hub.add(ID, FILES)
    endless = Content(b"x" * (3 << 20))
    hub.fail(f"/{ID}/*/config.json", faults.Instead(endless), method="GET")
    said = refusal(remote(repository), package)
    says(said)
    sizes = [path.stat().st_size for path in hub.client.home.rglob("*") if path.is_file()]
    assert max(sizes, default=0) < 2 << 20


def test_a_listing_without_an_end_is_cut(hub, monkeypatch):
    hub.add(ID, FILES)
    monkeypatch.setattr(answers, "ANSWER_BYTES", 1000)
    hub.fail("/api/*", faults.Instead(Content(b"[" * (65 << 20))))
    with pytest.raises(UserError) as error:
        Repository(ID).listing()
    says(error.value)
    assert error.value.code == ExitCode.NETWORK


def test_an_answer_that_drips_is_given_up(monkeypatch):
    clock = iter(range(0, 10_000, 2))
    monkeypatch.setattr(answers.time, "monotonic", lambda: next(clock))
    dripping = answers.BoundedStream([b"x"] * 100, 1000, "hub")
    with pytest.raises(UserError, match="sends only 0 bytes a second"):
        list(dripping)


def test_a_long_answer_at_an_ordinary_rate_is_taken(monkeypatch):
    clock = iter(range(0, 10_000, 2))
    monkeypatch.setattr(answers.time, "monotonic", lambda: next(clock))
    quick = answers.BoundedStream([b"x" * 4000] * 100, 1 << 20, "hub")
    assert len(b"".join(quick)) == 400_000


@pytest.mark.parametrize(
    "text",
    ["[]", "[" * 100_000, "no JSON", '{"siblings": 5}', '{"siblings": [5]}', "null"],
)
def test_a_listing_that_is_none_is_an_error_of_the_network(hub, text):
    hub.add(ID, FILES)
    hub.fail("/api/*", faults.Instead(Content(text.encode())))
    with pytest.raises(UserError) as error:
        Repository(ID).listing()
    says(error.value)
    assert error.value.code == ExitCode.NETWORK


def test_a_time_to_wait_of_5000_digits_is_not_read(hub, package):
    repository = hub.add(ID, FILES)
    wait = {"Retry-After": "9" * 5000}
    hub.fail("*", faults.Status(429, wait), numbers=range(1))
    bundle(remote(repository), package)
    assert json.loads((package / "Model/manifest.json").read_text())["model"] == ID


def test_compressed_bytes_are_refused(hub, package):
    repository = hub.add(ID, FILES)
    hub.fail(f"/{ID}/*", faults.Instead(headers={"Content-Encoding": "gzip"}), method="GET")
    says(refusal(remote(repository), package))
