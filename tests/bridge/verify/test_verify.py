import dataclasses
import errno
import json
import os
import shutil

import pytest

from h2o_pack.facts import coexistence, pins
from h2o_pack.files import lock
from h2o_pack.models.files import from_folder
from h2o_pack.package.build import make_package
from h2o_pack.spec import CacheSpec
from h2o_pack.vendoring.vendor import resolved, write_manifest
from h2o_pack.verify import check
from h2o_pack.verify.check import verify
from tests.bridge import schemas
from tests.bridge.bundling.sources import Bars
from tests.bridge.plans import plan_of
from tests.bridge.repositories import commit, git
from tests.bridge.trees import build_tree, relock, write_model
from tests.nightly import nightly_except

SOURCE = "Sources/H2OKit/H2OKVCache.swift"
WEIGHTS = "Model/model.safetensors"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A package of the small model, of which each test gets a copy."""
    folder = tmp_path_factory.mktemp("written")
    model = from_folder("tiny", write_model(folder / "tiny"))
    return make_package(plan_of(model, CacheSpec(max_kv=512)), folder / "Demo").folder


@pytest.fixture
def package(written, tmp_path):
    return shutil.copytree(written, tmp_path / "Demo")


def differences(package, **options):
    return [str(difference) for difference in verify(package, **options).differences]


def users(package):
    return [str(user) for user in verify(package).users]


def test_a_package_as_written_has_no_differences(package):
    result = verify(package)
    assert result.differences == ()
    assert result.vendor == "not made"
    assert result.model == "tiny"
    assert result.files == len(lock.read(package).files) + 5


@pytest.mark.parametrize("quick", [False, True])
def test_changes_of_generated_files_are_named(package, quick):
    (package / SOURCE).write_text("// mine")
    (package / "README.md").unlink()
    (package / "Package.swift").unlink()
    (package / "Package.swift").symlink_to("elsewhere")
    assert differences(package, quick=quick) == [
        "Package.swift is not a regular file",
        "README.md is missing",
        f"{SOURCE} has changed since h2o-pack wrote it",
    ]


def test_files_that_the_user_added_are_named_and_no_difference(package, tmp_path):
    additions = (
        *("Sources/H2OKit/Mine.swift", "Sources/H2OKit/xcuserdata/Mine.swift"),
        *("Sources/.build/Mine.swift", "Package@swift-6.2.swift"),
        *("Model/adapter/x.safetensors", "Model/notes.txt", "App/Chat/New.swift"),
    )
    build_tree(package, dict.fromkeys(additions, ""))
    (package / "App/Chat/ChatView.swift").write_text("// mine")
    (package / "App/Chat/DraftBar.swift").unlink()
    (package / "Model/linked").symlink_to(tmp_path)
    assert differences(package) == []
    assert users(package) == [
        "App/Chat/ChatView.swift was changed",
        "App/Chat/New.swift was added",
        "Model/adapter/x.safetensors was added, and mlx-swift-lm would load it",
        "Model/linked was added",
        "Model/notes.txt was added",
        "Package@swift-6.2.swift was added, and replaces Package.swift in a build",
        "Sources/.build/Mine.swift was added, and is built with the package",
        "Sources/H2OKit/Mine.swift was added, and is built with the package",
        "Sources/H2OKit/xcuserdata/Mine.swift was added, and is built with the package",
    ]


def test_a_file_of_the_record_below_a_link_is_not_the_file(package, tmp_path):
    (package / "Sources").rename(tmp_path / "moved")
    (package / "Sources").symlink_to(tmp_path / "moved")
    assert f"{SOURCE} is not a regular file" in differences(package)
    assert [user.path for user in verify(package).users] == ["Sources"]


def test_a_file_that_cannot_be_read_is_not_what_the_record_says(package, monkeypatch):
    monkeypatch.setattr(check, "read_file", refused_reading)
    assert f"{SOURCE} has changed since h2o-pack wrote it" in differences(package)


def refused_reading(path):
    raise OSError(errno.EFBIG, "it is larger than 64 MiB", str(path))


def test_a_changed_size_is_told_from_changed_content(package):
    weights = package / WEIGHTS
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    (package / "Model/config.json").write_text("{}")
    (package / "Model/tokenizer.json").unlink()
    size = next(
        file["size"]
        for file in json.loads((package / "Model/manifest.json").read_text())["files"]
        if file["path"] == "config.json"
    )
    assert differences(package) == [
        f"Model/config.json has 2 bytes instead of {size}",
        f"{WEIGHTS} has the right size but a different sha256",
        "Model/tokenizer.json is missing",
    ]
    assert [text[:12] for text in differences(package, quick=True)] == [
        "Model/config",
        "Model/tokeni",
    ]


def test_a_link_to_the_same_bytes_is_not_the_file(package, tmp_path):
    (package / WEIGHTS).rename(tmp_path / "moved")
    (package / WEIGHTS).symlink_to(tmp_path / "moved")
    assert differences(package) == [f"{WEIGHTS} is not a regular file"]


def test_a_file_that_cannot_be_read_is_a_difference(package, monkeypatch):
    def refuse(path, *_arguments):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("h2o_pack.verify.check.sha256_of", refuse)
    assert f"{WEIGHTS} cannot be read: Permission denied" in differences(package)


ONE_FILE = (
    '{"format": 1, "model": "tiny", "files": [{"path": "%s", "size": 1, "sha256": "%s"}]}'
)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (None, "is missing"),
        ("{", "is damaged"),
        ("[]", "is damaged"),
        ('{"format": 9}', "does not have format 1"),
        (
            ONE_FILE % ("../x", "0" * 64),
            "cannot be used: the model's file '../x' has an empty part",
        ),
        (ONE_FILE % ("x", "z"), "is damaged"),
    ],
)
def test_a_manifest_that_cannot_be_used_is_a_difference(package, text, what):
    path = package / "Model/manifest.json"
    path.unlink()
    if text is not None:
        path.write_text(text)
    (difference,) = differences(package)
    assert difference.startswith(f"Model/manifest.json {what}")


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"model": "other"}, "names the model 'tiny', but the lock names 'other'"),
        ({"commit": "1" * 40}, f"names the commit none, but the lock names {'1' * 40}"),
    ],
)
def test_a_manifest_of_another_model_than_the_lock_is_a_difference(package, change, what):
    [model] = lock.read(package).models
    relock(package, models=(dataclasses.replace(model, **change),))
    assert differences(package) == [f"Model/manifest.json {what}"]


def test_a_lock_that_names_files_outside_is_a_difference_and_nothing_is_opened(
    package, tmp_path
):
    (tmp_path / "secret").write_text("x")
    digest = lock.sha256(b"x")
    files = {**lock.read(package).files, "../secret": digest, "/etc/passwd": digest}
    edited = (lock.EditedFile("../../secret", digest, digest),)
    vendor = lock.Vendored("linux", digest, edited, digest)
    (package / "Vendor").mkdir()
    relock(package, files=files, vendor=vendor)
    assert [text.partition(" is in the records, but")[0] for text in differences(package)] == [
        "../secret",
        "/etc/passwd",
        "Vendor/manifest.json is missing",
        "Vendor/../../secret",
    ]


UPSTREAM = {f"mlx-swift/{name}.cpp": name for name in ("edited", "kept", "plain", "other")}
EDITED = tuple(
    lock.EditedFile(f"mlx-swift/{name}.cpp", lock.sha256(b"before"), lock.sha256(name.encode()))
    for name in ("edited", "kept")
)


@pytest.fixture
def with_vendor(package):
    """A package whose Vendor has four files, two of them edited."""
    folder = build_tree(package / "Vendor", UPSTREAM)
    relock(package, vendor=lock.Vendored("apple", "0" * 64, EDITED, write_manifest(folder)))
    return package


def test_every_file_of_vendor_is_compared(with_vendor):
    assert (differences(with_vendor), users(with_vendor)) == ([], [])
    result = verify(with_vendor)
    assert result.vendor == "checked"
    assert result.files == len(lock.read(with_vendor).files) + 5 + len(UPSTREAM)
    (with_vendor / "Vendor/mlx-swift/edited.cpp").write_text("before")
    (with_vendor / "Vendor/mlx-swift/kept.cpp").write_text("mine")
    (with_vendor / "Vendor/mlx-swift/other.cpp").unlink()
    with (with_vendor / "Vendor/mlx-swift/plain.cpp").open("a") as file:
        file.write("// appended")
    build_tree(with_vendor / "Vendor/mlx-swift", {"Added.swift": "", ".build/x": ""})
    assert differences(with_vendor) == [
        "Vendor/mlx-swift/edited.cpp is the original version: the edit of h2o-pack is missing",
        "Vendor/mlx-swift/kept.cpp has changed since h2o-pack wrote it",
        "Vendor/mlx-swift/other.cpp is missing",
        "Vendor/mlx-swift/plain.cpp has changed since h2o-pack wrote it",
    ]
    assert users(with_vendor) == [
        f"Vendor/mlx-swift/{name} was added, and may be built with the package"
        for name in (".build/x", "Added.swift")
    ]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (None, "is missing"),
        ("{", "has changed since h2o-pack wrote it"),
        ('{"format": 1, "files": {}}', "has changed since h2o-pack wrote it"),
    ],
)
def test_a_manifest_of_vendor_that_is_not_the_recorded_one_is_not_believed(
    with_vendor, text, what
):
    path = with_vendor / "Vendor/manifest.json"
    path.unlink()
    if text is not None:
        path.write_text(text)
    (with_vendor / "Vendor/mlx-swift/edited.cpp").write_text("mine")
    assert differences(with_vendor) == [
        f"Vendor/manifest.json {what}",
        "Vendor/mlx-swift/edited.cpp has changed since h2o-pack wrote it",
    ]


def test_vendor_that_is_gone_is_a_difference(with_vendor):
    shutil.rmtree(with_vendor / "Vendor")
    assert verify(with_vendor).vendor == "missing"
    assert differences(with_vendor) == [
        f"Vendor is missing; make it with `h2o-pack vendor {with_vendor}`"
    ]


def test_a_vendor_folder_that_the_lock_does_not_know_is_the_users(package):
    build_tree(package, {"Vendor/x": ""})
    assert users(package) == ["Vendor was added, and may be built with the package"]


def test_progress_tells_every_byte_of_the_model_and_none_when_quick(package):
    say = Bars()
    result = verify(package, say=say)
    assert say.bars == {"reading the model": (result.bytes, result.bytes)}
    say = Bars()
    verify(package, quick=True, say=say)
    assert say.bars == {"reading the model": (0, 0)}


def test_the_command_says_what_differs_and_ends_with_1(package, run):
    assert run("verify", package).stdout.startswith("unchanged: ")
    result = run("verify", package, "--json")
    unchanged = schemas.check(json.loads(result.stdout), "verify")
    assert (result.exit_code, unchanged["same"], unchanged["differences"]) == (0, True, [])
    (package / SOURCE).write_text("// mine")
    for options in ([], ["--quick"]):
        result = run("verify", package, *options)
        assert result.exit_code == 1
        assert result.stdout.startswith(
            f"generated: {SOURCE} has changed since h2o-pack wrote it\n1 difference in "
        )
    document = schemas.check(json.loads(run("verify", package, "--json").stdout), "verify")
    [difference] = document["differences"]
    assert (difference["part"], difference["kind"]) == ("generated", "changed")


def test_files_of_the_user_end_with_1_when_asked_for(package, run):
    assert run("verify", package, "--strict").exit_code == 0
    build_tree(package, {"Sources/H2OKit/Mine.swift": ""})
    result = run("verify", package)
    assert result.exit_code == 0
    assert result.stdout.startswith("yours: Sources/H2OKit/Mine.swift was added, and is built")
    assert run("verify", package, "--strict").exit_code == 1


NOT_RECORDED = (
    ".build/workspace-state.json",
    ".build/checkouts/swift-numerics/Package.swift",
    ".git/config",
    ".gitmodules",
    ".swiftpm/configuration/mirrors.json",
    ".swiftpm/xcode/package.xcworkspace/contents.xcworkspacedata",
    ".swiftpm/xcode/package.xcworkspace/xcshareddata/swiftpm/Package.resolved",
    ".swiftpm/xcode/xcuserdata/me.xcuserdatad/xcschemes/Demo.xcscheme",
    ".DS_Store",
    ".netrc",
    "App.new/Chat/Evil.swift",
    "App/Chat.xcodeproj/project.xcworkspace/xcshareddata/swiftpm/Package.resolved",
    "App/Chat.xcodeproj/xcuserdata/me/xcschemes/Chat.xcscheme",
    "App/Chat/Evil.swift",
    "App/ci_scripts/ci_post_clone.sh",
    "Demo.xcworkspace/contents.xcworkspacedata",
    "Model/x.safetensors",
    "Package.resolved",
    "Package@swift-6.0.swift",
    "Plugins/Evil/main.swift",
    "Replaced/x",
    "Snippets/Evil.swift",
    "Sources/.DS_Store",
    "Tests/Evil/Evil.swift",
    "Vendor/x/Package.swift",
    "ci_scripts/ci_post_clone.sh",
    "module.modulemap",
    "package@swift-6.swift",
)


TRACKED = [path for path in NOT_RECORDED if path != ".git/config"]


def unrecorded(package):
    [user] = verify(package).users
    return user.path


@pytest.mark.parametrize("path", nightly_except(NOT_RECORDED[::2], NOT_RECORDED))
def test_strict_names_every_file_that_is_in_no_record(package, path):
    build_tree(package, {path: "{}"})
    assert f"{path}/".startswith(f"{unrecorded(package)}/")


@pytest.mark.parametrize("path", nightly_except(TRACKED[::8], TRACKED))
def test_strict_names_files_that_git_tracks_too(package, path):
    build_tree(package, {path: "{}"})
    commit(package, {})
    git(package, "add", "--force", path)
    assert f"{path}/".startswith(f"{unrecorded(package)}/")


@pytest.mark.parametrize("kind", ["link", "link to a folder", "pipe"])
def test_strict_names_links_and_pipes_too(package, tmp_path, kind):
    place = package / "Sources/H2OKit/Evil.swift"
    if kind == "pipe":
        os.mkfifo(place)
    else:
        place.symlink_to(tmp_path if kind == "link to a folder" else tmp_path / "nowhere")
    assert [user.path for user in verify(package).users] == ["Sources/H2OKit/Evil.swift"]


LEFT_BY_TOOLS = {
    ".build/debug/x": "",
    ".parity/swift.log": "",
    ".swiftpm/xcode/package.xcworkspace/contents.xcworkspacedata": "",
    "App/Chat.xcodeproj/xcuserdata/me/state": "",
}


@pytest.mark.parametrize("place", ["", "inside"])
def test_only_what_git_ignores_in_a_package_that_it_tracks_is_left_out(
    package, tmp_path, place
):
    build_tree(package, LEFT_BY_TOOLS)
    names = [user.path for user in verify(package).users]
    assert names == [".build", ".parity", ".swiftpm", "App/Chat.xcodeproj/xcuserdata/me/state"]
    root = package
    if place:
        root = tmp_path / "app"
        root.mkdir()
        package = package.rename(root / "Demo")
    git(root, "init", "--quiet")
    named = [user.path for user in verify(package).users]
    assert [name for name in named if name != ".git"] == names  # git does not track it yet
    commit(root, {})
    assert users(package) == []
    build_tree(root, {".git/info/exclude": "*.swift\n", ".git/x": ""})
    build_tree(package, {"Sources/H2OKit/Evil.swift": ""})
    assert [user.path for user in verify(package).users] == ["Sources/H2OKit/Evil.swift"]


def test_what_git_ignores_is_named_where_recorded_files_are(with_vendor):
    build_tree(with_vendor, {"Vendor/mlx-swift/Evil.swift": ""})
    commit(with_vendor, {})
    assert [user.path for user in verify(with_vendor).users] == ["Vendor/mlx-swift/Evil.swift"]


def test_the_settings_of_a_packages_repository_run_nothing(package, tmp_path):
    commit(package, {})
    for key in ("core.fsmonitor", "core.sshCommand", "core.gitProxy", "alias.ls-files"):
        git(package, "config", key, f"!touch {tmp_path}/ran")
    for name in ("post-index-change", "fsmonitor-watchman"):
        build_tree(package, {f".git/hooks/{name}": f"#!/bin/sh\ntouch {tmp_path}/ran\n"})
        (package / ".git/hooks" / name).chmod(0o755)
    assert users(package) == []
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("text", ["{}", '{"pins": [], "version": 3}', "[" * 100_000])
def test_a_resolution_of_other_versions_than_vendors_is_named(with_vendor, text):
    versions = resolved(pins(), [library.name for library in coexistence().shared])
    reordered = json.loads(versions)
    reordered["pins"].reverse()
    (with_vendor / "Package.resolved").write_text(json.dumps({"originHash": "0", **reordered}))
    assert users(with_vendor) == []
    (with_vendor / "Package.resolved").write_text(text)
    assert users(with_vendor) == ["Package.resolved names other versions than h2o-pack wrote"]
