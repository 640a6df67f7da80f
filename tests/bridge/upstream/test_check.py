"""What drifted in upstream is named at once, and nothing is written."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from h2o_pack.errors import ExitCode
from h2o_pack.upstream import check
from h2o_pack.upstream.attention import LISTED, attention
from tests.bridge import schemas
from tests.bridge.trees import build_tree, tree

ATTENTION = """
class Attention:
    def __call__(self, queries, mask, cache):
        keys, values = cache.update_and_fetch(self.keys, self.values)
        {change}
        return scaled_dot_product_attention(queries, keys, values, cache=cache, mask=mask)
"""


@pytest.fixture
def clones(tmp_path) -> Path:
    """Make a folder with what is relied on in the installed packages."""
    texts = check.read_tables(check.RELIED_ON, check.ReliedOnFile).text
    for name, folder in check.installed().items():
        for file in {each.file for each in texts if each.package == name}:
            target = tmp_path / name / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / file, target)
    return tmp_path


def test_the_installed_packages_are_as_expected(run):
    result = run("upstream", "check")
    assert result.exit_code == 0, result.output
    assert result.output.endswith("as expected\n")


def test_every_attention_of_mlx_lm_can_be_routed_or_is_listed():
    classes = dict(attention(check.installed()["mlx-lm"] / check.MODELS))
    assert sum(classes.values()) > 70
    assert check.unknown_attention(classes) == []
    assert set(LISTED) - {name for name, routed in classes.items() if not routed} == {
        "afm7.KVReuseAttention",  # reads another layer's keys
        "gemma3n.Gemma3nAttention",  # routed, unless its keys are another layer's
        "phi3small.Attention",  # routed, unless it is block-sparse
    }


@pytest.mark.parametrize(
    ("change", "routed"), [("pass", True), ("keys = mx.repeat(keys, 2, axis=1)", False)]
)
def test_attention_that_changes_what_the_cache_returned_is_not_routed(tmp_path, change, routed):
    (tmp_path / "new.py").write_text(ATTENTION.format(change=change))
    assert dict(attention(tmp_path)) == {"new.Attention": routed}


def test_everything_that_drifted_is_named_and_nothing_is_written(run, clones):
    def altered(file: str, old: str, new: str) -> str:
        path = clones / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))
        return str(path)

    added = clones / "mlx-lm/mlx_lm/models/new.py"
    added.write_text(ATTENTION.format(change="values = values.astype(mx.float32)"))
    files = [
        altered("mlx/mlx/fast.h", "const float scale,", "const double scale,"),
        altered("mlx-lm/mlx_lm/models/cache.py", ".from_state(state", ".restored(state"),
        "mlx_lm/models/new.py",
    ]
    (clones / "mlx/mlx/allocator.h").unlink()
    before = tree(clones)
    result = run("upstream", "check", "--upstream", clones, "--json")
    assert result.exit_code == ExitCode.DIFFERENT
    found = schemas.check(json.loads(result.stdout), "upstream-check")
    named = {each["file"]: each["found"] for each in found["drifted"]}
    assert set(named) == {*files, str(clones / "mlx/mlx/allocator.h")}
    assert named[str(clones / "mlx/mlx/allocator.h")] == "no such file"
    assert named[files[0]] == "matches 0 times instead of 1"
    assert "mlx-swift-lm" in found["absent"]
    assert tree(clones) == before
    shown = run("upstream", "check", "--upstream", clones)
    assert shown.output.endswith("4 drifted\n")
    assert all(name in shown.output.replace("\n", "") for name in named)


def test_every_lost_anchor_of_the_swift_edits_is_named(run, clones):
    package = clones / "mlx-swift-lm"
    package.mkdir()
    result = run("upstream", "check", "--upstream", clones, "--json")
    found = json.loads(result.stdout)["drifted"]
    drifted = [each for each in found if each["used_by"] == check.EDITS_FOLDER]
    edits = [
        edit
        for edit in check.edits_of(check.assets.root()).edits
        if edit.package == "mlx-swift-lm"
    ]
    assert {each["file"] for each in drifted} == {str(package / edit.file) for edit in edits}
    for edit in edits:
        assert any(f"anchor {edit.anchor!r} matches 0" in each["found"] for each in drifted)


def test_a_use_of_an_api_that_no_privacy_manifest_names_has_drifted(run, clones):
    uses = build_tree(
        clones / "mlx-swift",
        {"Source/MLX/Uptime.swift": "let seconds = ProcessInfo.processInfo.systemUptime\n"},
    )
    build_tree(
        clones / "mlx-swift",
        {
            "Source/MLX/File.swift": "let read = stat(path, &status)\n",  # is declared
            "Source/Cmlx/metal-cpp/Foundation/NSProcessInfo.hpp": "double systemUptime();\n",
            "Source/Examples/Main.swift": "UserDefaults.standard\n",  # is not copied
        },
    )
    result = run("upstream", "check", "--upstream", clones, "--json")
    found = [
        (each["file"], each["found"])
        for each in json.loads(result.stdout)["drifted"]
        if each["used_by"].endswith("PrivacyInfo.xcprivacy")
    ]
    assert found == [(str(uses / "Source/MLX/Uptime.swift"), "uses systemUptime")]


def test_a_license_that_acknowledgements_do_not_have_has_drifted(run, clones):
    package = build_tree(
        clones / "mlx-swift-lm",
        {
            "LICENSE": "MIT License\n\nCopyright (c) 2024 ml-explore\n",
            "Libraries/New/LICENSE": "MIT License\n\nCopyright (c) 2026 Somebody\n",
            "Tests/LICENSE": "Copyright (c) 2026 Somebody else, which is not copied\n",
        },
    )

    def found():
        result = run("upstream", "check", "--upstream", clones, "--json")
        drifted = json.loads(result.stdout)["drifted"]
        return [each["file"] for each in drifted if each["used_by"] == "acknowledgements"]

    assert found() == [str(package / "Libraries/New/LICENSE")]
    (package / "LICENSE").write_text("Copyright (c) 2027 ml-explore\n")
    assert found() == [
        str(package / name) for name in ("LICENSE", "LICENSE", "Libraries/New/LICENSE")
    ]


def test_a_folder_without_any_of_them_is_refused(run, tmp_path):
    result = run("upstream", "check", "--upstream", tmp_path)
    assert result.exit_code == ExitCode.USAGE
    assert f"{tmp_path} has none of mlx, mlx-lm, mlx-swift" in result.stderr
