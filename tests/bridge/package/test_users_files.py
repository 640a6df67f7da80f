"""What a user owns in a package, when the command runs again."""

from __future__ import annotations

import json
import shutil

import pytest

from h2o_pack.errors import ExitCode
from h2o_pack.files import lock
from tests.bridge.trees import build_tree, tree

PROJECT = "App/Chat.xcodeproj/project.pbxproj"
VIEW = "App/Chat/ChatView.swift"
SOURCE = "Sources/H2OKit/H2OKVCache.swift"


@pytest.fixture
def package(tmp_path):
    return tmp_path / "Demo"


@pytest.fixture
def ios(run, package):
    """Make the package, or make it again; return what is printed as JSON."""

    def command(*options, max_kv=256, code=ExitCode.OK):
        arguments = ("--model", "demo", "--max-kv", max_kv, "--output", package)
        result = run("ios", *arguments, "--json", *options)
        assert result.exit_code == code, result.output
        return json.loads(result.stdout)

    return command


def test_the_app_is_written_once_and_every_edit_of_it_stays(ios, package):
    assert ios()["app"] == "written"
    project = (package / PROJECT).read_text() + "// DEVELOPMENT_TEAM = MINE;\n"
    edits = {PROJECT: project, VIEW: "// mine\n", "App/Chat/New.swift": "// new\n"}
    build_tree(package, edits)
    (package / "App/Chat/KeptStrip.swift").unlink()
    mine = {path: text for path, text in tree(package).items() if path.startswith("App")}
    again = ios(max_kv=200)
    assert again["app"] == "kept"
    assert not [path for path in again["files"] if path.startswith("App")]
    assert {p: t for p, t in tree(package).items() if p.startswith("App")} == mine
    assert lock.read(package).models[0].config["max_size"] == 200


def test_a_newer_scaffold_is_said_and_goes_beside_the_app_on_request(
    ios, package, copied_assets
):
    ios()
    (package / VIEW).write_text("// mine\n")
    (copied_assets / "swift_templates/App/Chat/ChatView.swift").write_text("// newer\n")
    assert ios()["app"] == "outdated"
    assert not (package / "App.new").exists()
    offered = ios("--app")
    assert offered["app"] == "offered"
    assert "App.new/Chat/ChatView.swift" in offered["files"]
    assert (package / VIEW).read_text() == "// mine\n"
    newer = (package / "App.new/Chat/ChatView.swift").read_text()
    assert newer == "// written once by h2o-pack, yours to change\n// newer\n"
    assert ios()["app"] == "kept"
    assert (package / "App.new/Chat/ChatView.swift").read_text() == newer
    assert ios("--app")["app"] == "offered"  # what is there is the same


def test_a_scaffold_that_was_changed_is_not_written_over(ios, package):
    ios()
    ios("--app")
    (package / "App.new/Chat/ChatView.swift").write_text("// merging\n")
    before = tree(package)
    said = ios("--app", code=ExitCode.OUTPUT)["errors"][0]
    assert said["what"] == f"{package}/App.new exists and has another ChatView.swift"
    assert tree(package) == before


def test_an_app_that_was_removed_comes_back_on_request_only(ios, package):
    ios()
    shutil.rmtree(package / "App")
    assert ios()["app"] == "removed"
    assert not (package / "App").exists()
    assert ios("--app")["app"] == "written"
    assert (package / VIEW).exists()


def test_a_package_of_an_earlier_release_keeps_its_app_too(ios, package):
    ios()
    record = json.loads((package / lock.NAME).read_text())
    del record["app"]
    record["files"][VIEW] = lock.sha256((package / VIEW).read_bytes())
    (package / lock.NAME).write_text(json.dumps(record))
    (package / PROJECT).write_text("// mine")
    before = (package / VIEW).read_text()
    assert ios()["app"] == "outdated"
    assert (package / VIEW).read_text() == before
    assert (package / PROJECT).read_text() == "// mine"


ADDED = {
    "App/Shared/Mine.swift": "mine",
    "Sources/H2OKit/Mine.swift": "mine",
    "Sources/Mine/Mine.swift": "mine",
    "Tests/MineTests/T.swift": "mine",
    "Model/notes.txt": "mine",
    "Vendor/mlx-swift/Mine.swift": "mine",
    ".github/workflows/mine.yml": "mine",
    ".git/HEAD": "mine",
    "Notes.md": "mine",
}


def test_what_a_user_adds_anywhere_stays_and_is_no_error(ios, run, package, tmp_path):
    ios()
    build_tree(package, ADDED)
    (package / "Sources/Empty").mkdir()
    (package / "App/Elsewhere").symlink_to(tmp_path)
    (package / "Sources/Elsewhere").symlink_to(tmp_path)
    again = ios(max_kv=200)
    assert again["replaced"] == []
    assert {path: (package / path).read_text() for path in ADDED} == ADDED
    assert (package / "Sources/Empty").is_dir()
    for folder in ("App", "Sources"):
        assert (package / folder / "Elsewhere").readlink() == tmp_path
    assert run("verify", package).exit_code == 0


def test_generated_files_that_were_changed_are_written_anew_and_kept_apart(ios, run, package):
    ios()
    build_tree(package, {SOURCE: "first", "Model/config.json": "{}"})
    assert ios(max_kv=200)["replaced"] == ["Model/config.json", SOURCE]
    (package / SOURCE).write_text("second")
    written = run("ios", "--model", "demo", "--max-kv", 256, "--output", package).stdout
    told = " ".join(written.split())
    assert f"you had changed {SOURCE}, which is written anew; yours is in Replaced" in told
    assert tree(package / "Replaced") == {
        SOURCE: "first",
        f"{SOURCE}.2": "second",
        "Model/config.json": "{}",
    }
    assert (package / SOURCE).read_text().startswith("// generated by")


def test_a_users_file_where_a_new_release_writes_its_own_is_kept_apart(
    ios, package, copied_assets
):
    ios()
    build_tree(package, {"Sources/H2OKit/Taken.swift": "mine", "Sources/H2OKit/Way": "mine"})
    build_tree(
        copied_assets / "swift_templates/H2OKit", {"Taken.swift": "theirs", "Way/Q.swift": "q"}
    )
    ios()
    assert tree(package / "Replaced/Sources/H2OKit") == {"Taken.swift": "mine", "Way": "mine"}
    assert (package / "Sources/H2OKit/Taken.swift").read_text().endswith("theirs")


def test_weights_that_a_user_exchanged_are_kept_apart(ios, package):
    ios()
    weights = package / "Model/model.safetensors"
    original = weights.read_bytes()
    weights.write_bytes(original[:-1] + bytes([original[-1] ^ 1]))
    mine = weights.read_bytes()
    assert ios(max_kv=200)["replaced"] == ["Model/model.safetensors"]
    assert weights.read_bytes() == original
    assert (package / "Replaced/Model/model.safetensors").read_bytes() == mine
