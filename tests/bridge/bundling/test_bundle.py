from __future__ import annotations

import hashlib
import json
import os
from functools import partial

import pytest

from h2o_pack.bundling.bundle import bundle
from h2o_pack.errors import ExitCode, UserError
from h2o_pack.files import digests
from tests.bridge.bundling.sources import Bars, File, Model, local
from tests.bridge.refusals import refused
from tests.bridge.trees import build_tree, tree
from tests.messages import says

FILES = {"config.json": "{}", "tokenizer.json": "[]", "model.safetensors": "weights"}


@pytest.fixture
def folder(tmp_path):
    return build_tree(tmp_path / "tiny", FILES)


@pytest.fixture
def package(tmp_path):
    (tmp_path / "package").mkdir()
    return tmp_path / "package"


refusal = partial(refused, bundle, code=ExitCode.MODEL)


def checksum(path):
    """Return the line that sha256sum writes of a file in FILES."""
    return f"{hashlib.sha256(FILES[path].encode()).hexdigest()}  {path}\n"


def test_the_model_folder_holds_the_models_files_and_a_manifest(folder, package):
    build_tree(folder, {"README.md": "not needed", "adapters/x.safetensors": "not wanted"})
    manifest = bundle(local(folder, *FILES), package)
    written = tree(package / "Model")
    assert json.loads(written.pop("manifest.json")) == {
        "format": 1,
        "model": "tiny",
        "commit": "",
        "files": [
            {
                "path": path,
                "size": len(text),
                "sha256": hashlib.sha256(text.encode()).hexdigest(),
            }
            for path, text in FILES.items()
        ],
        "digest": hashlib.sha256("".join(map(checksum, sorted(FILES))).encode()).hexdigest(),
    }
    assert written == FILES
    assert manifest.size == 11


def test_folders_inside_a_model_stay_as_they_are(folder, package):
    build_tree(folder, {"sub/deep/vocab.txt": "v", "sub/model-2.safetensors": "w"})
    bundle(local(folder), package)
    written = tree(package / "Model")
    assert (written["sub/deep/vocab.txt"], written["sub/model-2.safetensors"]) == ("v", "w")


def test_nothing_in_a_package_is_a_file_of_the_users_or_of_another_package(folder, tmp_path):
    packages = [tmp_path / "one", tmp_path / "two"]
    for each in packages:
        each.mkdir()
        bundle(local(folder), each)
    for name in FILES:
        assert [(each / "Model" / name).stat().st_nlink for each in packages] == [1, 1]
    (packages[0] / "Model/model.safetensors").write_text("changed")
    assert (folder / "model.safetensors").read_text() == "weights"
    assert (packages[1] / "Model/model.safetensors").read_text() == "weights"


def test_copies_share_blocks_where_the_file_system_can(folder, package, monkeypatch):
    cloned = []

    def share(source, target):
        cloned.append(source.name)
        target.write_bytes(source.read_bytes())
        return True

    monkeypatch.setattr(digests, "clone", share)
    monkeypatch.setattr("h2o_pack.bundling.bundle.can_clone", lambda *_folders: True)
    manifest = bundle(local(folder), package)
    assert sorted(cloned) == sorted(FILES)
    assert manifest.files[1].sha256 == hashlib.sha256(b"weights").hexdigest()


@pytest.fixture
def earlier(folder, tmp_path):
    """An earlier package of the same model."""
    (tmp_path / "earlier").mkdir()
    bundle(local(folder), tmp_path / "earlier")
    return tmp_path / "earlier"


WEIGHTS = "Model/model.safetensors"


def test_weights_that_the_earlier_package_has_are_taken_over(folder, package, earlier):
    bundle(local(folder), package, earlier=earlier)
    assert (package / WEIGHTS).samefile(earlier / WEIGHTS)
    assert not (package / "Model/config.json").samefile(earlier / "Model/config.json")


@pytest.mark.parametrize("what", ["other content", "linked elsewhere", "a link", "absent"])
def test_weights_of_the_earlier_package_that_may_not_be_taken_over_are_copied(
    folder, package, earlier, what
):
    weights = earlier / WEIGHTS
    if what == "other content":
        weights.write_text("WEIGHTS")
    elif what == "linked elsewhere":
        os.link(weights, earlier / "mine")
    else:
        weights.unlink()
    if what == "a link":
        weights.symlink_to(folder / "model.safetensors")
    bundle(local(folder), package, earlier=earlier)
    assert (package / WEIGHTS).read_text() == "weights"
    assert (package / WEIGHTS).stat().st_nlink == 1


def test_the_links_of_the_hubs_cache_are_followed_to_its_blobs(tmp_path, package):
    repository = tmp_path / "models--a--b"
    build_tree(repository / "blobs", FILES)
    snapshot = repository / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    for name in FILES:
        (snapshot / name).symlink_to(f"../../blobs/{name}")
    bundle(local(snapshot), package)
    assert not any(path.is_symlink() for path in (package / "Model").iterdir())
    assert (package / "Model/config.json").read_text() == "{}"


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_link_out_of_a_models_folder_is_refused(folder, package, tmp_path, name):
    (tmp_path / "secret").write_text("secret!")
    (folder / name).unlink()
    (folder / name).symlink_to("../secret")
    said = refusal(local(folder), package)
    says(said)
    assert not (package / "Model").exists()


def test_a_linked_folder_out_of_a_models_folder_is_refused(folder, package, tmp_path):
    build_tree(tmp_path / "elsewhere", {"x.json": "x"})
    (folder / "sub").symlink_to(tmp_path / "elsewhere")
    says(refusal(local(folder, "sub/x.json"), package))


def test_a_link_inside_a_models_folder_is_followed(folder, package):
    (folder / "vocab.json").symlink_to("config.json")
    bundle(local(folder), package)
    assert (package / "Model/vocab.json").read_text() == "{}"


@pytest.mark.parametrize("what", ["missing", "fifo", "folder", "loop"])
def test_what_is_not_a_regular_file_is_refused_without_being_opened(folder, package, what):
    path = folder / "extra.json"
    makers = {
        "missing": lambda: None,
        "fifo": lambda: os.mkfifo(path),
        "folder": path.mkdir,
        "loop": lambda: path.symlink_to("extra.json"),
    }
    makers[what]()
    said = refusal(Model("x", (File("extra.json", 1),), folder=folder), package)
    assert said.startswith("extra.json ")


def test_a_file_that_changed_since_it_was_listed_is_refused(folder, package):
    model = local(folder)
    (folder / "config.json").write_text("{ }")
    says(refusal(model, package))


def test_all_files_that_changed_are_named(folder, package):
    files = (File("config.json", 2, "0" * 64), File("tokenizer.json", 5))
    with pytest.raises(UserError) as caught:
        bundle(Model("x", files, folder=folder), package)
    assert [each.what[:14] for each in caught.value.errors] == [
        "config.json ha",
        "tokenizer.json",
    ]


def test_progress_tells_every_byte(folder, package):
    say = Bars()
    bundle(local(folder), package, say)
    assert say.bars == {"bundling tiny": (11, 11)}


def test_an_interruption_is_passed_on_and_stops_the_other_files(folder, package, monkeypatch):
    class Interrupting(Bars):
        def bar(self, *_arguments):
            return Stop()

    class Stop:
        def __enter__(self):
            return self

        def __exit__(self, *_error):
            pass

        def __call__(self, _amount):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bundle(local(folder), package, Interrupting())
    assert not (package / "Model/manifest.json").exists()
