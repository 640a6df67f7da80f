"""What a user owns in a package, when `ios` or `update` runs again."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from h2o_pack.cli import main
from h2o_pack.errors import ExitCode, UserError
from h2o_pack.files import lock
from h2o_pack.package import render
from h2o_pack.package import update as update_module
from h2o_pack.spec import CacheSpec, ModelSpec, PackageSpec, from_document, to_document
from tests.bridge import schemas
from tests.bridge.trees import build_tree, tree, write_model
from tests.nightly import nightly_except

PROJECT = "App/demo.xcodeproj/project.pbxproj"
VIEW = "App/Chat/ChatView.swift"
SOURCE = "Sources/H2OKit/H2OKVCache.swift"


@pytest.fixture
def package(tmp_path):
    return tmp_path / "Demo"


@pytest.fixture(scope="module")
def demo_once(tmp_path_factory):
    """Make the package that `make()` and `ios()` make, for copies."""
    package = tmp_path_factory.mktemp("once") / "Demo"
    arguments = ("ios", "--model", "demo", "--max-kv", "96", "--output", str(package))
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == ExitCode.OK, result.output
    return package


@pytest.fixture
def made(demo_once, package):
    shutil.copytree(demo_once, package)


@pytest.fixture
def make(ios):
    """Make the package, or make it again; return what is printed as JSON."""
    return lambda *options, **settings: json.loads(ios("--json", *options, **settings).stdout)


def test_the_app_is_written_once_and_every_edit_of_it_stays(make, package):
    assert make()["app"] == "written"
    project = (package / PROJECT).read_text() + "// DEVELOPMENT_TEAM = MINE;\n"
    edits = {PROJECT: project, VIEW: "// mine\n", "App/Chat/New.swift": "// new\n"}
    build_tree(package, edits)
    (package / "App/Chat/DraftBar.swift").unlink()
    files = {path: text for path, text in tree(package).items() if path.startswith("App")}
    again = make(max_kv=200)
    assert again["app"] == "kept"
    assert not [path for path in again["files"] if path.startswith("App")]
    assert {p: t for p, t in tree(package).items() if p.startswith("App")} == files
    assert lock.read(package).models[0].config["max_size"] == 200


@pytest.mark.usefixtures("made")
def test_a_newer_scaffold_is_said_and_goes_beside_the_app_on_request(
    make, package, copied_assets
):
    (package / VIEW).write_text("// mine\n")
    (copied_assets / "swift_templates/App/Chat/ChatView.swift").write_text("// newer\n")
    assert make()["app"] == "outdated"
    assert not (package / "App.new").exists()
    document = make("--app")
    assert document["app"] == "offered"
    assert "App.new/Chat/ChatView.swift" in document["files"]
    assert (package / VIEW).read_text() == "// mine\n"
    newer = (package / "App.new/Chat/ChatView.swift").read_text()
    assert newer == "// written once by h2o-pack, yours to change\n// newer\n"
    assert make()["app"] == "kept"
    assert (package / "App.new/Chat/ChatView.swift").read_text() == newer
    assert make("--app")["app"] == "offered"  # what is there is the same


@pytest.mark.usefixtures("made")
def test_a_scaffold_that_was_changed_is_not_written_over(make, package):
    make("--app")
    (package / "App.new/Chat/ChatView.swift").write_text("// merging\n")
    before = tree(package)
    [error] = make("--app", code=ExitCode.OUTPUT)["errors"]
    assert error["what"] == f"{package}/App.new already has a different ChatView.swift"
    assert tree(package) == before


@pytest.mark.usefixtures("made")
def test_an_app_that_was_removed_comes_back_on_request_only(make, package):
    shutil.rmtree(package / "App")
    assert make()["app"] == "removed"
    assert not (package / "App").exists()
    assert make("--app")["app"] == "written"
    assert (package / VIEW).exists()


@pytest.mark.usefixtures("made")
def test_a_package_of_an_earlier_release_keeps_its_app_too(make, package):
    record = json.loads((package / lock.NAME).read_text())
    del record["app"]
    record["files"][VIEW] = lock.sha256((package / VIEW).read_bytes())
    (package / lock.NAME).write_text(json.dumps(record))
    (package / PROJECT).write_text("// mine")
    before = (package / VIEW).read_text()
    assert make()["app"] == "outdated"
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


@pytest.mark.usefixtures("made")
def test_files_that_a_user_adds_stay(make, run, package, tmp_path):
    build_tree(package, ADDED)
    (package / "Sources/Empty").mkdir()
    (package / "App/Elsewhere").symlink_to(tmp_path)
    (package / "Sources/Elsewhere").symlink_to(tmp_path)
    again = make(max_kv=200)
    assert again["replaced"] == []
    assert {path: (package / path).read_text() for path in ADDED} == ADDED
    assert (package / "Sources/Empty").is_dir()
    for folder in ("App", "Sources"):
        assert (package / folder / "Elsewhere").readlink() == tmp_path
    assert run("verify", package).exit_code == 0


@pytest.mark.usefixtures("made")
def test_generated_files_that_were_changed_are_written_anew_and_kept_apart(make, ios, package):
    build_tree(package, {SOURCE: "first", "Model/config.json": "{}"})
    assert make(max_kv=200)["replaced"] == ["Model/config.json", SOURCE]
    (package / SOURCE).write_text("second")
    summary = " ".join(ios().stdout.split())
    assert f"you had changed {SOURCE}: your version is in Replaced" in summary
    assert tree(package / "Replaced") == {
        SOURCE: "first",
        f"{SOURCE}.2": "second",
        "Model/config.json": "{}",
    }
    assert (package / SOURCE).read_text().startswith("// generated by")


@pytest.mark.usefixtures("made")
def test_a_users_file_where_a_new_release_writes_its_own_is_kept_apart(
    make, package, copied_assets
):
    build_tree(package, {"Sources/H2OKit/Taken.swift": "mine", "Sources/H2OKit/Way": "mine"})
    build_tree(
        copied_assets / "swift_templates/H2OKit", {"Taken.swift": "theirs", "Way/Q.swift": "q"}
    )
    make()
    assert tree(package / "Replaced/Sources/H2OKit") == {"Taken.swift": "mine", "Way": "mine"}
    assert (package / "Sources/H2OKit/Taken.swift").read_text().endswith("theirs")


@pytest.mark.usefixtures("made")
def test_weights_that_a_user_exchanged_are_kept_apart(make, package):
    weights = package / "Model/model.safetensors"
    original = weights.read_bytes()
    weights.write_bytes(original[:-1] + bytes([original[-1] ^ 1]))
    content = weights.read_bytes()
    assert make(max_kv=200)["replaced"] == ["Model/model.safetensors"]
    assert weights.read_bytes() == original
    assert (package / "Replaced/Model/model.safetensors").read_bytes() == content


# Updates


@pytest.fixture
def update(run, package):
    def command(*options, code=ExitCode.OK):
        result = run("update", package, "--json", *options)
        assert result.exit_code == code, result.output
        name = "error" if code else "update"
        return schemas.check(json.loads(result.stdout), name)

    return command


OPTIONS = {
    "asset pack": (
        *("--name", "Mine", "--kv", "k8v4", "--pin", "0:8", "--asset-pack", "--context", 512),
        *("--budgets", "budgets.json", "--recall", "--archive", "files"),
    ),
    "download": ("--download", "https://models.example.com/chat/1"),
    "several models": ("--model", "demo-4bit", "--kv", "8"),
}


@pytest.mark.parametrize("kind", nightly_except(["asset pack", "several models"], OPTIONS))
def test_an_update_repeats_all_options_from_the_lock_alone(
    ios, run, update, package, tmp_path, monkeypatch, kind
):
    monkeypatch.chdir(tmp_path)
    layer = {"heavy_budget": 16, "recent_budget": 24, "max_size": 48}
    budgets = {"format": 1, "layers": [layer, None, None, None]}
    (tmp_path / "budgets.json").write_text(json.dumps(budgets))
    ios(*OPTIONS[kind])
    (tmp_path / "budgets.json").unlink()
    before = tree(package)
    assert update() == {"format": 1, "package": str(package), "changes": [], "made": None}
    assert run("update", package).stdout == "nothing to change\n"
    assert tree(package) == before
    (package / SOURCE).unlink()
    shown = run("update", package, "--dry-run").stdout
    assert shown.startswith(f"file {SOURCE}: is missing\n")
    assert [change["name"] for change in update()["changes"]] == [SOURCE]
    assert tree(package) == before


@pytest.mark.usefixtures("made")
def test_a_newer_tool_says_what_changes_before_it_does(update, run, package, monkeypatch):
    (package / VIEW).write_text("// mine")
    (package / SOURCE).write_text("// mine too")
    for module in (render, update_module):
        monkeypatch.setattr(module, "__version__", "0.2.0")
    before = tree(package)
    document = update("--dry-run")
    assert tree(package) == before
    assert document["made"] is None
    assert document["changes"][0] == {
        "part": "tool",
        "name": "h2o-pack",
        "before": "0.1.0",
        "after": "0.2.0",
        "yours": False,
    }
    files = [change["name"] for change in document["changes"] if change["part"] == "file"]
    assert SOURCE in files
    output = run("update", package).stdout
    assert output.startswith("tool h2o-pack: 0.1.0 -> 0.2.0\n")
    assert f"file {SOURCE}: you changed it; your version goes to Replaced\n" in output
    assert "file Package.swift: h2o-pack writes another content now\n" in output
    assert (package / VIEW).read_text() == "// mine"
    assert (package / "Replaced" / SOURCE).read_text() == "// mine too"
    assert (package / SOURCE).read_text().startswith("// generated by h2o-pack 0.2.0")
    assert lock.read(package).h2o_pack == "0.2.0"


@pytest.mark.usefixtures("made")
def test_an_older_tool_is_refused(update, package):
    record = json.loads((package / lock.NAME).read_text())
    (package / lock.NAME).write_text(json.dumps({**record, "h2o_pack": "0.10.0"}))
    before = tree(package)
    [error] = update(code=ExitCode.VERSION)["errors"]
    assert error["what"] == "h2o-pack 0.10.0 made the package, and this is 0.1.0"
    assert tree(package) == before


@pytest.mark.usefixtures("made")
def test_a_package_on_an_earlier_upstream_moves_to_the_present_one(update, package):
    record = json.loads((package / lock.NAME).read_text())
    present = record["upstream"]["mlx-swift-lm"]
    record["upstream"]["mlx-swift-lm"] = {"version": "earlier", "commit": "b" * 40}
    (package / lock.NAME).write_text(json.dumps(record))
    changes = {change["name"]: change["before"] for change in update()["changes"]}
    assert changes == {"mlx-swift-lm": "earlier bbbbbbbbbbbb"}
    assert lock.read(package).upstream["mlx-swift-lm"] == present
    assert update()["changes"] == []


def test_a_model_of_the_hub_goes_to_the_commit_of_its_branch(
    ios, update, package, hub, tmp_path
):
    folder = write_model(tmp_path / "files")
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    repository = hub.add("a/b", files)
    first = repository.refs["main"]
    ios(model="a/b")
    later = repository.commit({**files, "tokenizer_config.json": b"{}"})
    [change] = [change for change in update()["changes"] if change["part"] == "model"]
    assert (change["name"], change["before"]) == ("a/b", first[:12])
    assert change["after"] == later[:12]
    assert lock.read(package).models[0].commit == later


def test_a_changed_file_of_a_local_model_is_seen_and_taken(ios, update, package, tmp_path):
    folder = write_model(tmp_path / "model")
    ios(model=folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "rope_theta": 5000.0}))
    [change] = update("--dry-run")["changes"]
    assert (change["part"], change["name"]) == ("model", "Model/config.json")
    assert change["before"] != change["after"] != ""
    assert update()["made"] is not None
    assert json.loads((package / "Model/config.json").read_text())["rope_theta"] == 5000
    assert update()["changes"] == []


@pytest.mark.parametrize(
    "change",
    [
        {"nosuch": 1},
        {"models": 5},
        {"models": []},
        {"models": [{"model": 5}]},
        {"models": [{"adapter": 5}]},
        {"models": [{"cache": None}]},
        {"models": [{"cache": {"max_kv": "64"}}]},
        {"models": [{"cache": {"max_kv": 64, "nosuch": 1}}]},
        {"models": [{"cache": {"max_kv": 64, "policy": "nosuch"}}]},
        {"models": [{"cache": {"max_kv": 64, "settings": {"nosuch": 1}}}]},
        {"app": {"system": 5}},
        {"app": {"nosuch": 5}},
    ],
    ids=json.dumps,
)
def test_options_that_cannot_be_read_are_an_error_with_a_remedy(change):
    spec = PackageSpec((ModelSpec("demo", CacheSpec(max_kv=64)),))
    document = to_document(spec, lock.NAME)
    assert from_document(document, Path(lock.NAME)) == spec
    with pytest.raises(UserError) as error:
        from_document(document | change, Path(lock.NAME))
    assert error.value.code == ExitCode.VERSION
    assert error.value.what.startswith("the lock has options that this version cannot read: ")
    assert error.value.where == lock.NAME
    assert "Run the `h2o-pack ios` command of this package again" in error.value.remedy


def test_a_model_in_a_folder_whose_name_is_no_utf8_is_found_again(ios, run, package, tmp_path):
    folder = write_model(tmp_path / "mod\udce4l 100%25")
    ios(model=folder)
    assert run("update", package).stdout == "nothing to change\n"
    (folder / "tokenizer.json").unlink()
    assert run("update", package).exit_code == ExitCode.MODEL
