from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil

import pytest

from h2o_pack.errors import ExitCode, UserError
from h2o_pack.files import lock
from h2o_pack.package.contents import make_package
from h2o_pack.plan.package_plan import CacheOptions, make_plan
from h2o_pack.verify.check import verify
from tests.bridge import schemas
from tests.bridge.bundling.sources import Bars
from tests.bridge.trees import build_tree

SOURCE = "Sources/H2OKit/H2OKVCache.swift"
WEIGHTS = "Model/model.safetensors"


@pytest.fixture
def package(model, tmp_path):
    return make_package(make_plan(model, CacheOptions(max_kv=512)), tmp_path / "Demo").folder


def found(package, **options):
    return [str(each) for each in verify(package, **options).differences]


def test_a_package_as_written_has_no_differences(package):
    result = verify(package)
    assert result.differences == ()
    assert result.vendor == "not made"
    assert result.model == "tiny"
    assert result.files == len(lock.read(package).files) + 3


@pytest.mark.parametrize("quick", [False, True])
def test_what_was_done_to_generated_files_is_said(package, quick):
    (package / SOURCE).write_text("// mine")
    (package / "README.md").unlink()
    (package / "Package.swift").unlink()
    (package / "Package.swift").symlink_to("elsewhere")
    build_tree(package, {"Sources/H2OKit/Mine.swift": "", "Package@swift-6.2.swift": ""})
    assert found(package, quick=quick) == [
        "Package.swift is not a regular file",
        "README.md is missing",
        f"{SOURCE} has changed since h2o-pack wrote it",
        "Sources/H2OKit/Mine.swift is not of h2o-pack's making",
        "Package@swift-6.2.swift replaces Package.swift in a build",
    ]


def test_what_tools_leave_and_users_keep_beside_it_is_not_a_difference(package):
    build_tree(
        package,
        {
            ".build/debug/x": "",
            ".git/HEAD": "",
            "Notes.md": "",
            "Package.resolved": "",
            "Sources/.DS_Store": "",
            "App/Chat.xcodeproj/xcuserdata/me/state": "",
            "App/Chat.xcodeproj/project.xcworkspace/contents": "",
        },
    )
    assert found(package) == []


def test_a_changed_size_is_told_from_changed_content(package):
    weights = package / WEIGHTS
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.unlink()  # it is a hard link to the test's model
    weights.write_bytes(content)
    (package / "Model/config.json").write_text("{}")
    (package / "Model/tokenizer.json").unlink()
    size = next(
        each["size"]
        for each in json.loads((package / "Model/manifest.json").read_text())["files"]
        if each["path"] == "config.json"
    )
    assert found(package) == [
        f"Model/config.json has 2 bytes instead of {size}",
        f"{WEIGHTS} has the right size and other content: its sha256 differs",
        "Model/tokenizer.json is missing",
    ]
    assert [each[:12] for each in found(package, quick=True)] == [
        "Model/config",
        "Model/tokeni",
    ]


def test_what_is_not_of_the_model_is_named(package):
    build_tree(package, {"Model/adapter/x.safetensors": "", "Model/notes.txt": ""})
    (package / "Model/linked").symlink_to(package / "Sources")
    assert found(package) == [
        "Model/adapter/x.safetensors is not in the manifest, and mlx-swift-lm would load it",
        "Model/linked is not in the manifest",
        "Model/notes.txt is not in the manifest",
    ]


def test_a_link_to_the_same_bytes_is_not_the_file(package, tmp_path):
    (package / WEIGHTS).rename(tmp_path / "moved")
    (package / WEIGHTS).symlink_to(tmp_path / "moved")
    assert found(package) == [f"{WEIGHTS} is not a regular file"]


def test_a_file_that_cannot_be_read_is_a_difference(package, monkeypatch):
    def refuse(path, *_arguments):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("h2o_pack.verify.files.sha256_of", refuse)
    assert f"{WEIGHTS} cannot be read: Permission denied" in found(package)


ONE_FILE = (
    '{"format": 1, "model": "tiny", "files": [{"path": "%s", "size": 1, "sha256": "%s"}]}'
)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (None, "is missing"),
        ("{", "is damaged"),
        ("[]", "is damaged"),
        ('{"format": 9}', "has another format than 1"),
        (ONE_FILE % ("../x", "0" * 64), "cannot be used: the model's file '../x' leads"),
        (ONE_FILE % ("x", "z"), "is damaged"),
    ],
)
def test_a_manifest_that_cannot_be_used_is_a_difference(package, text, what):
    path = package / "Model/manifest.json"
    path.unlink()
    if text is not None:
        path.write_text(text)
    (difference,) = found(package)
    assert difference.startswith(f"Model/manifest.json {what}")


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"model": "other"}, "is of the model 'tiny', the lock of 'other'"),
        ({"commit": "1" * 40}, f"is of the commit none, the lock of {'1' * 40}"),
    ],
)
def test_a_manifest_of_another_model_than_the_lock_is_a_difference(package, change, what):
    record = dataclasses.replace(lock.read(package), **change)
    (package / lock.NAME).write_text(record.to_json())
    assert found(package) == [f"Model/manifest.json {what}"]


def test_a_lock_that_names_files_outside_is_a_difference_and_nothing_is_opened(
    package, tmp_path
):
    (tmp_path / "secret").write_text("x")
    record = lock.read(package)
    digest = hashlib.sha256(b"x").hexdigest()
    files = {**record.files, "../secret": digest, "/etc/passwd": digest}
    vendor = lock.Vendored("linux", "", (lock.EditedFile("../../secret", "", digest),))
    (package / "Vendor").mkdir()
    record = dataclasses.replace(record, files=files, vendor=vendor)
    (package / lock.NAME).write_text(record.to_json())
    assert [each.partition(" is named in the lock, but")[0] for each in found(package)] == [
        "../secret",
        "/etc/passwd",
        "Vendor/../../secret",
    ]


def test_vendor_is_compared_with_the_edits_that_were_made(package):
    texts = {
        "mlx-swift/a.cpp": "edited",
        "mlx-swift/b.cpp": "edited",
        "mlx-swift/c.cpp": "edited",
    }
    build_tree(package / "Vendor", texts)
    edited = tuple(
        lock.EditedFile(path, lock.sha256(b"before"), lock.sha256(b"edited")) for path in texts
    )
    record = dataclasses.replace(
        lock.read(package), vendor=lock.Vendored("apple", "0" * 64, edited)
    )
    (package / lock.NAME).write_text(record.to_json())
    assert (found(package), verify(package).vendor) == ([], "checked")
    (package / "Vendor/mlx-swift/a.cpp").write_text("before")
    (package / "Vendor/mlx-swift/b.cpp").write_text("mine")
    (package / "Vendor/mlx-swift/c.cpp").unlink()
    assert found(package) == [
        "Vendor/mlx-swift/a.cpp is as upstream has it: the edit is gone",
        "Vendor/mlx-swift/b.cpp has changed since h2o-pack wrote it",
        "Vendor/mlx-swift/c.cpp is missing",
    ]
    shutil.rmtree(package / "Vendor")
    assert verify(package).vendor == "missing"
    assert found(package) == [
        f"Vendor is missing: make it again with `h2o-pack vendor {package}`"
    ]


def test_a_vendor_folder_that_the_lock_does_not_know_is_a_difference(package):
    (package / "Vendor").mkdir()
    assert found(package) == ["Vendor is there, but the lock does not say how it was made"]


def test_progress_tells_every_byte_of_the_model_and_none_when_quick(package):
    say = Bars()
    result = verify(package, say=say)
    assert say.bars == {"reading the model": (result.bytes, result.bytes)}
    say = Bars()
    verify(package, quick=True, say=say)
    assert say.bars == {"reading the model": (0, 0)}


def test_a_folder_that_is_no_package_is_refused(tmp_path):
    with pytest.raises(UserError, match="is not a package made by h2o-pack") as caught:
        verify(tmp_path)
    assert caught.value.code == ExitCode.OUTPUT


def test_the_command_says_what_differs_and_ends_with_1(package, run):
    result = run("verify", package)
    assert result.exit_code == 0
    assert result.stdout.startswith("as written: ")
    (package / SOURCE).write_text("// mine")
    result = run("verify", package, "--quick")
    assert result.exit_code == 1
    assert result.stdout.startswith(
        f"generated: {SOURCE} has changed since h2o-pack wrote it\n1 difference in "
    )
    assert run("verify", package.parent / "tiny").exit_code == 4


def test_the_command_speaks_json(package, run):
    whole = schemas.check(json.loads(run("verify", package, "--json").stdout), "verify")
    assert (whole["same"], whole["differences"]) == (True, [])
    build_tree(package, {"Model/x.safetensors": "", SOURCE: "//"})
    result = run("verify", package, "--json")
    document = schemas.check(json.loads(result.stdout), "verify")
    assert result.exit_code == 1
    assert [(each["part"], each["kind"]) for each in document["differences"]] == [
        ("generated", "changed"),
        ("model", "added"),
    ]
    failed = run("verify", package.parent, "--json")
    assert failed.exit_code == 4
    schemas.check(json.loads(failed.stdout), "error")
