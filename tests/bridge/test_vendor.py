import json
import os
import shutil
from pathlib import Path

import pytest

from h2o_pack import assets
from h2o_pack.errors import ExitCode, UserError
from h2o_pack.facts import pins
from h2o_pack.files import lock
from h2o_pack.vendoring import vendor as vendoring
from h2o_pack.vendoring.edits import EDITS as EDITS_FILE
from h2o_pack.vendoring.fetch import Origin
from h2o_pack.vendoring.vendor import vendor
from h2o_pack.verify.check import verify
from tests.bridge.repositories import ALL, PLACES, commit, git
from tests.bridge.trees import build_tree, names, tree
from tests.messages import refused, says

EDITS = """
[[copy]]
package = "mlx-swift"
paths = ["Package.swift"]

[[copy]]
package = "mlx-swift"
paths = ["Source", "Source/deep/gpu/needed.h"]
needs = ["Source/all.h"]
without = ["*.md", "deep/gpu"]

[[copy]]
package = "mlx-swift-lm"
paths = ["Package.swift"]

[[copy]]
package = "swift-numerics"
paths = ["Package.swift"]
only = "linux"

[[copy]]
package = "swift-jinja"
paths = ["Package.swift"]
folder = "jinja"
only = "offline"

[[edit]]
package = "mlx-swift"
file = "Source/all.h"
anchor = '^#include "fast\\.h"$'
where = "after"
insert = "#include \\"h2o.h\\"\\n"

[[edit]]
package = "mlx-swift"
file = "Package.swift"
anchor = '^gpu\\n'
where = "replace"
replacement = "// no gpu\\n"
only = "linux"

[[edit]]
package = "mlx-swift"
file = "Source/kernel.h"
anchor = '^score;$'
where = "after"
insert = "store;\\n"

[[file]]
package = "mlx-swift"
source = "cexport/h2o/*.cpp"
destination = "Source/h2o/"

[[edit]]
package = "mlx-swift-lm"
file = "Package.swift"
anchor = 'url: ".*"'
where = "replace"
replacement = 'path: "../mlx-swift"'
"""

UPSTREAM = {
    **ALL,
    "mlx-swift/Source/deep/x.cpp": "int x;\n",
    "mlx-swift/Source/deep/gpu/x.cu": "not needed\n",
    "mlx-swift/Source/README.md": "not needed\n",
    "mlx-swift/Tests/t.swift": "not needed\n",
    "swift-jinja/Package.swift": "jinja\n",
    "swift-numerics/Package.swift": "numerics\n",
}


def contents(package: Path) -> dict[str, str]:
    """Return the files of Vendor without their manifest."""
    files = tree(package / "Vendor")
    assert set(json.loads(files.pop("manifest.json"))["files"]) == set(files)
    return files


@pytest.fixture
def upstream(tmp_path) -> Path:
    return build_tree(tmp_path / "upstream", UPSTREAM)


@pytest.fixture
def package(tiny_package, tmp_path, monkeypatch) -> Path:
    small = build_tree(
        tmp_path / "small",
        {
            EDITS_FILE: EDITS,
            "cexport/h2o/a.cpp": "int a;\n",
            "cexport/h2o/b.cpp": "int b;\n",
        },
    )
    monkeypatch.setattr(assets, "root", lambda: small)
    return tiny_package


def test_only_what_building_needs_is_copied_and_edited(package, upstream):
    vendor(package, upstream, "apple")
    assert contents(package) == {
        "mlx-swift/Package.swift": "gpu\ncpu\n",
        "mlx-swift/Source/all.h": '#include "fast.h"\n#include "h2o.h"\n',
        "mlx-swift/Source/deep/gpu/needed.h": "int needed;\n",
        "mlx-swift/Source/deep/x.cpp": "int x;\n",
        "mlx-swift/Source/h2o/a.cpp": "int a;\n",
        "mlx-swift/Source/h2o/b.cpp": "int b;\n",
        "mlx-swift/Source/kernel.h": "score;\nstore;\n",
        "mlx-swift/Source/mlx/array.h": "int array;\n",
        "mlx-swift-lm/Package.swift": 'dependency(path: "../mlx-swift")\n',
    }
    assert tree(upstream) == UPSTREAM


def test_edits_for_linux_are_made_for_linux_only(package, upstream):
    vendor(package, upstream, "linux")
    files = tree(package / "Vendor")
    assert files["mlx-swift/Package.swift"] == "// no gpu\ncpu\n"
    assert files["swift-numerics/Package.swift"] == "numerics\n"


def test_offline_the_small_libraries_are_copied_too(package, upstream, run):
    assert run("vendor", package, "--upstream", upstream).exit_code == 0
    assert not (package / "Vendor/jinja").exists()
    assert "swift-jinja" in (package / "Package.resolved").read_text()
    result = run("vendor", package, "--upstream", upstream, "--offline", "--json")
    assert json.loads(result.output)["offline"]
    assert lock.read(package).vendor.offline
    assert (package / "Vendor/jinja/Package.swift").read_text() == "jinja\n"


def test_the_lock_has_the_sha256_of_each_edited_file_before_and_after(package, upstream):
    vendor(package, upstream, "apple")
    record = lock.read(package).vendor
    assert record is not None
    assert record.host == "apple"
    before, after = (b'#include "fast.h"\n', b'#include "fast.h"\n#include "h2o.h"\n')
    assert record.files[0] == lock.EditedFile(
        "mlx-swift/Source/all.h", lock.sha256(before), lock.sha256(after)
    )
    assert [file.path for file in record.files] == [
        "mlx-swift/Source/all.h",
        "mlx-swift/Source/kernel.h",
        "mlx-swift-lm/Package.swift",
    ]


def test_other_edits_make_the_vendor_folder_out_of_date(package, upstream):
    before = vendor(package, upstream, "apple").edits
    build_tree(assets.root(), {EDITS_FILE: EDITS.replace("store;", "keep;")})
    assert vendoring.digest(assets.root()) != before
    assert vendor(package, upstream, "apple").edits == vendoring.digest(assets.root())


def test_sources_that_are_edited_already_are_taken_as_they_are(package, upstream, tmp_path):
    vendor(package, upstream, "linux")
    first = tree(package / "Vendor")
    shutil.copytree(package / "Vendor", tmp_path / "edited")
    vendor(package, tmp_path / "edited", "linux")
    assert tree(package / "Vendor") == first


def test_what_a_user_adds_to_vendor_or_changes_in_it_is_not_lost(package, upstream):
    vendor(package, upstream, "apple")
    additions = {"mlx-swift/Source/mine.h": "mine", "mine/x": "mine"}
    build_tree(package / "Vendor", {**additions, "mlx-swift/Source/all.h": "changed"})
    vendor(package, upstream, "linux")
    again = tree(package / "Vendor")
    assert {path: again[path] for path in additions} == additions
    assert again["mlx-swift/Source/all.h"] == '#include "fast.h"\n#include "h2o.h"\n'
    assert tree(package / "Replaced") == {"Vendor/mlx-swift/Source/all.h": "changed"}
    assert [user.path for user in verify(package).users] == [
        "Replaced",
        *(f"Vendor/{path}" for path in sorted(additions)),
    ]


def test_a_vendor_folder_without_its_manifest_is_kept_apart_whole(package, upstream):
    vendor(package, upstream, "apple")
    build_tree(package / "Vendor", {"mlx-swift/Source/mine.h": "mine"})
    (package / "Vendor/manifest.json").unlink()
    before = tree(package / "Vendor")
    vendor(package, upstream, "apple")
    assert tree(package / "Replaced/Vendor") == before
    assert "mlx-swift/Source/mine.h" not in contents(package)


def refusal(package: Path, upstream: Path | Origin, code: ExitCode) -> str:
    return refused(vendor, package, upstream, "apple", code=code)


def test_a_missing_checkout_is_named_and_nothing_is_left(package, upstream):
    shutil.rmtree(upstream / "mlx-swift" / "Source")
    before = tree(package)
    says(refusal(package, upstream, ExitCode.USAGE))
    assert tree(package) == before
    assert not [name for name in names(package) if "h2o-new" in name]


def test_a_clone_without_its_submodules_is_named(package, upstream):
    (upstream / "mlx-swift/Source/all.h").unlink()
    with pytest.raises(UserError, match=r"mlx-swift/Source/all\.h is missing .*submodules"):
        vendor(package, upstream, "apple")
    assert not (package / "Vendor").exists()


def test_drifted_sources_leave_the_earlier_vendor_folder_whole(package, upstream):
    vendor(package, upstream, "apple")
    before = tree(package)
    for name in ("mlx-swift/Source/all.h", "mlx-swift/Source/kernel.h"):
        (upstream / name).write_text("// rewritten upstream\n")
    first, second = refusal(package, upstream, ExitCode.VERSION).splitlines()
    assert "matches 0 times instead of 1" in first
    assert "mlx-swift/Source/all.h, expected as in mlx-swift 0.31.6" in first
    assert "mlx-swift/Source/kernel.h, expected as in mlx-swift 0.31.6" in second
    assert tree(package) == before


def test_an_interruption_leaves_the_earlier_vendor_folder_whole(package, upstream, monkeypatch):
    vendor(package, upstream, "apple")
    before = tree(package)

    def stop(*_arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(vendoring, "add_files", stop)
    with pytest.raises(KeyboardInterrupt):
        vendor(package, upstream, "linux")
    assert tree(package) == before


def test_a_vendor_folder_of_somebody_else_is_left_alone(package, server, tmp_path):
    build_tree(package, {"Vendor/mine": "mine"})
    says(refusal(package, Origin(tmp_path / "cache", server.url), ExitCode.OUTPUT))
    assert tree(package / "Vendor") == {"mine": "mine"}
    assert server.requests == []


def test_vendor_is_not_made_through_a_link(package, upstream, tmp_path):
    """The folder to which it leads has a Vendor of the same record."""
    vendor(package, upstream, "apple")
    (package / "Vendor").rename(tmp_path / "theirs")
    (package / "Vendor").symlink_to(tmp_path / "theirs")
    before = tree(tmp_path / "theirs")
    says(refusal(package, upstream, ExitCode.OUTPUT))
    assert tree(tmp_path / "theirs") == before


@pytest.mark.parametrize("link", ["Replaced", "Replaced/Vendor", "Replaced/Vendor/mlx-swift"])
@pytest.mark.parametrize("with_manifest", [True, False])
def test_no_file_of_vendor_moves_through_a_link(
    package, upstream, tmp_path, link, with_manifest
):
    vendor(package, upstream, "apple")
    build_tree(package / "Vendor", {"mlx-swift/Source/all.h": "changed"})
    if not with_manifest:
        (package / "Vendor/manifest.json").unlink()
    home = tmp_path / "home"
    home.mkdir()
    (package / link).parent.mkdir(parents=True, exist_ok=True)
    (package / link).symlink_to(home)
    before = tree(package)
    if with_manifest or link != "Replaced/Vendor/mlx-swift":
        says(refusal(package, upstream, ExitCode.OUTPUT))
        assert tree(package) == before
    else:
        vendor(package, upstream, "apple")  # the whole folder gets another name
    assert names(home) == []


def test_a_device_in_a_clone_is_not_copied(package, upstream):
    (upstream / "mlx-swift/Source/endless.h").symlink_to("/dev/zero")
    assert "regular file" in refusal(package, upstream, ExitCode.OUTPUT)
    assert not (package / "Vendor").exists()


@pytest.mark.parametrize("name", ["mlx-swift", "mlx"])
def test_a_git_checkout_of_another_commit_is_refused(package, upstream, name):
    pin = pins()[name]
    commit(upstream / pin.place, {"x": "x"})
    message = refusal(package, upstream, ExitCode.VERSION)
    assert message.startswith(f"{name} is at commit ")
    assert f"instead of {pin.commit[:12]} ({upstream / pin.place})" in message
    assert not (package / "Vendor").exists()


def another_users(_folder, monkeypatch):
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)  # it may call every folder safe
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")


def without_a_head(folder, _monkeypatch):
    (folder / ".git/HEAD").unlink()


def below_another_repository(folder, monkeypatch):
    without_a_head(folder, monkeypatch)
    commit(folder.parent, {"x": "x"})


def with_damaged_settings(folder, _monkeypatch):
    (folder / ".git/config").write_text("[")


def without_its_git_folder(folder, _monkeypatch):
    shutil.rmtree(folder / ".git")
    (folder / ".git").write_text("gitdir: /nowhere\n")


def with_a_link_to_nowhere(folder, _monkeypatch):
    shutil.rmtree(folder / ".git")
    (folder / ".git").symlink_to("nowhere")


@pytest.mark.parametrize(
    "damage",
    [
        another_users,
        without_a_head,
        below_another_repository,
        with_damaged_settings,
        without_its_git_folder,
        with_a_link_to_nowhere,
    ],
)
def test_a_clone_of_which_git_cannot_say_the_commit_is_refused(
    package, upstream, monkeypatch, damage
):
    folder = upstream / "mlx-swift"
    commit(folder, {"x": "x"})
    damage(folder, monkeypatch)
    message = refusal(package, upstream, ExitCode.VERSION)
    assert message.startswith("git cannot say at which commit mlx-swift is: ")
    assert f"({folder})" in message
    assert not (package / "Vendor").exists()


def test_a_clone_cannot_be_checked_without_git(package, upstream, tmp_path, monkeypatch):
    commit(upstream / "mlx-swift", {})
    monkeypatch.setenv("PATH", str(tmp_path))
    says(refusal(package, upstream, ExitCode.TOOL))


def test_folders_without_git_need_no_git(package, upstream, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    vendor(package, upstream, "apple")
    record = lock.read(package).vendor
    assert record is not None
    assert set(record.commits.values()) == {""}


def clones(repositories, folder: Path) -> Path:
    """Clone the repositories as somebody does by hand."""
    for name in ("mlx-swift", "mlx", "mlx-swift-lm"):
        source, place = f"{repositories.url}/owner/{name}", PLACES.get(name, name)
        git(folder.parent, "clone", "-q", source, str(folder / place))
    return folder


def test_clones_and_fetched_sources_make_the_same_package(package, repositories, tmp_path):
    folder = vendor(package, Origin(tmp_path / "cache", repositories.url), "apple")
    files = tree(package / "Vendor")
    assert folder.commits == repositories.commits
    assert files["mlx-swift/Source/all.h"] == '#include "fast.h"\n#include "h2o.h"\n'
    assert files["mlx-swift/Source/mlx/array.h"] == "int array;\n"
    assert vendor(package, clones(repositories, tmp_path / "own"), "apple") == folder
    assert tree(package / "Vendor") == files


def fetching(run, package, cache, mirror, *options):
    return run("vendor", package, "--cache", cache, "--mirror", mirror, *options)


def test_the_command_has_a_line_for_each_repository(run, package, repositories, tmp_path):
    result = fetching(run, package, tmp_path / "cache", repositories.url)
    assert result.exit_code == 0
    short = {name: commit[:12] for name, commit in repositories.commits.items()}
    assert result.stderr.splitlines() == [
        f"mlx-swift 1.0 {short['mlx-swift']}: fetched",
        f"mlx 1.0 {short['mlx']}: fetched",
        f"mlx-swift-lm 1.0 {short['mlx-swift-lm']}: fetched",
    ]
    assert result.stdout.startswith(f"{package}/Vendor is made for the host apple\n")


def test_json_is_all_that_is_printed(run, package, repositories, tmp_path):
    result = fetching(run, package, tmp_path / "cache", repositories.url, "--json")
    document = json.loads(result.output)
    assert document["commits"] == repositories.commits
    assert [entry["path"] for entry in document["edited"]] == [
        "mlx-swift/Source/all.h",
        "mlx-swift/Source/kernel.h",
        "mlx-swift-lm/Package.swift",
    ]


def test_offline_the_command_ends_with_7_and_changes_nothing(
    run, package, repositories, tmp_path, monkeypatch
):
    before = tree(package)
    monkeypatch.setenv("H2O_PACK_MIRROR", "http://127.0.0.1:9")
    monkeypatch.setenv("H2O_PACK_CACHE", str(tmp_path / "cache"))
    result = run("vendor", package)
    assert result.exit_code == ExitCode.NETWORK == 7
    assert result.stderr.startswith("error: mlx-swift 1.0, commit ")
    assert len(result.stderr.splitlines()) == 1
    assert result.stdout == ""
    assert tree(package) == before
    assert names(package) == [name for name in names(package) if "h2o-new" not in name]
    assert names(tmp_path / "cache") == ["upstream"]


@pytest.mark.parametrize(
    "dependency",
    [
        '.package(url: "https://github.com/x/y", exact: "1.2.3")',
        '.package(\n    name: "y", url: "https://github.com/x/y", from: "1.0.0")',
        '.package(id: "x.y", from: "1.0.0")',
    ],
)
def test_a_dependency_that_would_be_fetched_later_is_refused(package, upstream, dependency):
    (upstream / "mlx-swift/Package.swift").write_text(f"gpu\n{dependency}\n")
    says(refused(vendor, package, upstream, "apple", code=ExitCode.VERSION))
    assert not (package / "Vendor").exists()
