"""What drifted in upstream is named at once, and nothing is written."""

import shutil
from pathlib import Path

import pytest

from h2o_pack.errors import ExitCode
from h2o_pack.facts import components
from h2o_pack.models.config import SHAPES
from tests.bridge.trees import build_tree, tree
from tools.shapes import shapes
from tools.upstream import __main__ as upstream
from tools.upstream.__main__ import LISTED, attention

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
    texts = upstream.read_rows(upstream.RELIED_ON, "text", upstream.ReliedOn)
    for name, folder in upstream.installed().items():
        for file in {text.file for text in texts if text.package == name}:
            target = tmp_path / name / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / file, target)
    return tmp_path


def test_the_installed_packages_are_as_expected(capsys):
    assert upstream.main([]) == 0
    assert capsys.readouterr().out.endswith("as expected\n")


def test_every_attention_of_mlx_lm_can_be_routed_or_is_listed():
    classes = dict(attention(upstream.installed()["mlx-lm"] / upstream.MODELS))
    assert sum(classes.values()) > 70
    assert upstream.unknown_attention(classes) == []
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


def test_everything_that_drifted_is_named_and_nothing_is_written(capsys, clones):
    def altered(file: str, old: str, new: str) -> str:
        path = clones / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))
        return str(path)

    path = clones / "mlx-lm/mlx_lm/models/new.py"
    path.write_text(ATTENTION.format(change="values = values.astype(mx.float32)"))
    files = [
        altered("mlx/mlx/fast.h", "const float scale,", "const double scale,"),
        altered("mlx-lm/mlx_lm/models/cache.py", ".from_state(state", ".restored(state"),
        "mlx_lm/models/new.py",
    ]
    (clones / "mlx/mlx/allocator.h").unlink()
    before = tree(clones)
    assert upstream.main(["--upstream", str(clones)]) == ExitCode.DIFFERENT
    output = capsys.readouterr().out
    report = upstream.check(clones)
    drifts = {drift.file: drift.found for drift in report.drifted}
    assert set(drifts) == {*files, str(clones / "mlx/mlx/allocator.h")}
    assert drifts[str(clones / "mlx/mlx/allocator.h")] == "no such file"
    assert drifts[files[0]] == "matches 0 times instead of 1"
    assert "mlx-swift-lm" in report.absent
    assert tree(clones) == before
    assert output.endswith("differences: 4\n")
    assert all(name in output for name in drifts)


def test_every_lost_anchor_of_the_swift_edits_is_named(clones):
    package = clones / "mlx-swift-lm"
    package.mkdir()
    drifts = [
        drift
        for drift in upstream.check(clones).drifted
        if drift.used_by == upstream.EDITS_FOLDER
    ]
    edits = [
        edit
        for edit in upstream.edits_of(upstream.assets.root()).edits
        if edit.package == "mlx-swift-lm"
    ]
    assert {drift.file for drift in drifts} == {str(package / edit.file) for edit in edits}
    for edit in edits:
        words = f"the pattern {edit.anchor!r} of an edit matches 0 times"
        assert any(words in drift.found for drift in drifts)


def test_a_use_of_an_api_that_no_privacy_manifest_names_has_drifted(clones):
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
    drifts = [
        (drift.file, drift.found)
        for drift in upstream.check(clones).drifted
        if drift.used_by == upstream.PRIVACY
    ]
    assert drifts == [
        (
            str(uses / "Source/MLX/Uptime.swift"),
            "uses systemUptime, which the manifest does not declare",
        )
    ]


def test_a_license_that_acknowledgements_do_not_have_has_drifted(clones):
    package = build_tree(
        clones / "mlx-swift-lm",
        {
            **{
                component.file: "\n".join(component.copyright)
                for component in components()
                if component.package == "mlx-swift-lm"
            },
            "Libraries/New/LICENSE": "MIT License\n\nCopyright (c) 2026 Somebody\n",
            "Tests/LICENSE": "Copyright (c) 2026 Somebody else, which is not copied\n",
        },
    )

    def unstated():
        drifts = upstream.check(clones).drifted
        return [drift.file for drift in drifts if drift.used_by == "acknowledgements"]

    assert unstated() == [str(package / "Libraries/New/LICENSE")]
    (package / "LICENSE").write_text("Copyright (c) 2027 ml-explore\n")
    assert unstated() == [
        str(package / name) for name in ("LICENSE", "LICENSE", "Libraries/New/LICENSE")
    ]


def test_a_folder_without_any_of_them_is_refused(capsys, tmp_path):
    assert upstream.main(["--upstream", str(tmp_path)]) == ExitCode.USAGE
    assert str(tmp_path) in capsys.readouterr().err


def test_the_file_of_shapes_is_what_the_tool_writes():
    assert shapes() == SHAPES.read_text("utf-8"), "run python -m tools.shapes"
