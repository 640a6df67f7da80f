from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from h2o_pack import assets
from h2o_pack.errors import ExitCode, UserError
from h2o_pack.kernels import sources
from h2o_pack.kernels.constants import FunctionConstant, bake, function_constants
from h2o_pack.kernels.sources import (
    HEADER,
    KERNELS,
    SWIFT_HEADER,
    assemble,
    check,
    edits_for,
    patch,
    patch_file,
    upstream_headers,
    version_of,
    versions,
)
from h2o_pack.vendoring.edits import EDITS, Edit, read_edits
from tests.bridge.trees import tree
from tests.metal.mlx_headers import ROOT, header, include_folder

VERSIONS = ("0.31", "0.32")
SITES = {"0.31": 2, "0.32": 4}  # where a score is complete
EDITS_BY_VERSION = [(version, edit) for version in VERSIONS for edit in edits_for(version)]

every_version = pytest.mark.parametrize("version", VERSIONS)


def name_of(value: object) -> str:
    return value if isinstance(value, str) else str(getattr(value, "anchor", value))[-40:]


def refusal(path: Path, version: str | None) -> str:
    before = path.read_bytes()
    with pytest.raises(UserError) as caught:
        patch_file(path, version=version, write=True)
    assert caught.value.code == ExitCode.VERSION
    assert path.read_bytes() == before
    return str(caught.value)


def write(folder: Path, text: str) -> Path:
    path = folder / "sdpa_vector.h"
    path.write_text(text, encoding="utf-8")
    return path


def other(version: str) -> str:
    return VERSIONS[1 - VERSIONS.index(version)]


def test_there_are_edits_for_the_versions_tested_here_and_one_is_the_installed_one():
    assert versions() == VERSIONS
    assert version_of(upstream_headers()) == edits_for("0.31")[0].version
    assert version_of(include_folder("0.32")) == edits_for("0.32")[0].version


@every_version
def test_a_patched_header_stores_each_score_and_each_hidden_key_by_lane_0_only(version):
    text = patch(header(version), version)
    stores = re.findall(r"^.*\n +scores\[size_t\(", text, re.MULTILINE)
    hidden = sum("else if" in store for store in stores)
    assert len(stores) - hidden == SITES[version] == text.count("score = simd_sum(score);")
    assert hidden == text.count("if (use_key) {")
    assert all("if (h2o_emit && simd_lid == 0) {" in store for store in stores)
    parameter = "device float* scores [[buffer(27), function_constant(h2o_emit)]],"
    assert text.count(parameter) == text.count("[[kernel]]") - 1  # 2pass_2 has no scores


@every_version
def test_only_lines_are_added_to_upstreams(version):
    kept = header(version).splitlines()
    rest = iter(patch(header(version), version).splitlines())
    closing = "    } else if (h2o_emit && simd_lid == 0) {"
    lost = [line for line in kept if not any(new in (line, closing) for new in rest)]
    assert lost == []


@every_version
def test_a_patch_made_twice_changes_nothing_more(version):
    once = patch(header(version), version)
    assert once != header(version)
    assert patch(once, version) == once


@every_version
def test_the_constants_of_a_patched_header_are_upstreams_and_one_more(version):
    upstream = function_constants(header(version))
    assert [constant.index for constant in upstream] == list(range(20, 27))
    assert function_constants(patch(header(version), version)) == (
        *upstream,
        FunctionConstant("output_scores", "bool", 27),
    )


@every_version
def test_a_file_is_patched_once_and_then_left_alone(version, tmp_path):
    path = write(tmp_path, header(version))
    first = patch_file(path, version=version, write=True)
    assert (first.path, first.version, first.before) == (path, version, "upstream")
    assert first.changed
    assert path.read_text() == patch(header(version), version)
    changed_at = path.stat().st_mtime_ns
    second = patch_file(path, version=version, write=True)
    assert (second.before, second.changed) == ("patched", False)
    assert path.stat().st_mtime_ns == changed_at


@every_version
def test_looking_at_a_file_writes_nothing(version, tmp_path):
    path = write(tmp_path, header(version))
    before = path.stat().st_mtime_ns
    result = patch_file(path, version=version, write=False)
    assert (result.before, result.changed) == ("upstream", False)
    assert path.read_text() == header(version)
    assert path.stat().st_mtime_ns == before


@every_version
def test_the_version_of_a_header_is_found_out_patched_or_not(version, tmp_path):
    path = write(tmp_path, header(version))
    assert patch_file(path, version=None, write=True).version == version
    assert patch_file(path, version=None, write=True).version == version
    assert path.read_text() == patch(header(version), version)


@every_version
def test_check_tells_upstreams_patched_and_drifted_headers_apart(version, tmp_path):
    path = write(tmp_path, header(version))
    assert check(path, version) == "upstream"
    assert check(path, other(version)) == "drifted"
    write(tmp_path, patch(header(version), version))
    assert check(path, version) == "patched"
    write(tmp_path, "// rewritten upstream\n")
    assert check(path, version) == "drifted"


@every_version
def test_a_header_of_another_version_is_refused_and_left_as_it_is(version, tmp_path):
    said = refusal(write(tmp_path, header(version)), other(version))
    expected = edits_for(other(version))[0].version
    assert f"expected as in mlx {expected})" in said
    assert said.endswith(f"Use the sources of mlx {expected}.")


@pytest.mark.parametrize(("version", "edit"), EDITS_BY_VERSION, ids=name_of)
def test_a_line_that_drifted_is_refused_by_file_anchor_count_and_version(
    version: str, edit: Edit, tmp_path
):
    text = header(version)
    match = re.search(edit.anchor, text, re.MULTILINE)
    assert match is not None
    *_, last = re.finditer(r"^.*\w.*$", match[0], re.MULTILINE)
    at = match.start() + last.end()
    path = write(tmp_path, f"{text[: at - 1]} /* drifted */ {text[at - 1 :]}")
    for given in (version, None):
        assert refusal(path, given) == (
            f"anchor {edit.anchor!r} matches {edit.count - 1} times instead of {edit.count} "
            f"({path}: mlx/{HEADER}, expected as in mlx {edit.version}). "
            f"Use the sources of mlx {edit.version}."
        )


@every_version
def test_one_more_place_where_scores_are_made_is_refused(version, tmp_path):
    text = header(version)
    site = re.search(r"^ {6}score = simd_sum(?:.*\n)+? {6}\}\n", text, re.MULTILINE)
    assert site is not None
    path = write(tmp_path, text[: site.end()] + site[0] + text[site.end() :])
    assert "matches 3 times instead of 2" in refusal(path, version)


def test_a_version_without_edits_is_refused_by_name(tmp_path):
    said = refusal(write(tmp_path, header("0.31")), "0.40.1")
    assert said == (
        f"there are no edits of the kernels of mlx 0.40.1 ({sources.EDITS}). "
        "Use mlx 0.31 or 0.32."
    )


def test_the_header_is_found_in_an_include_folder_and_in_mlx_swift(tmp_path):
    for layout in (HEADER, SWIFT_HEADER):
        folder = tmp_path / layout.parts[0]
        path = folder / layout
        path.parent.mkdir(parents=True)
        path.write_text(header("0.31"))
        result = patch_file(folder, version=None, write=True)
        assert (result.path, result.version, result.changed) == (path, "0.31", True)
        assert path.read_text() == patch(header("0.31"), "0.31")


def test_a_folder_without_the_header_is_refused(tmp_path):
    with pytest.raises(UserError, match="is neither sdpa_vector") as caught:
        patch_file(tmp_path, version=None, write=True)
    assert caught.value.code == ExitCode.USAGE


def test_vendoring_makes_the_edits_of_the_pinned_mlx_from_the_same_file():
    shipped = read_edits(assets.root() / EDITS).edits
    mine = [edit for edit in shipped if edit.file == SWIFT_HEADER.as_posix()]
    assert {edit.package for edit in mine} == {"mlx-swift"}
    assert [(edit.anchor, edit.insert, edit.replacement) for edit in mine] == [
        (edit.anchor, edit.insert, edit.replacement) for edit in edits_for("0.31")
    ]


@every_version
def test_the_assembled_tree_is_upstreams_with_one_file_patched(version, tmp_path):
    assemble(tmp_path, include_folder(version))
    expected = {
        path: text
        for path, text in tree(include_folder(version) / KERNELS).items()
        if path.endswith(".h")
    }
    expected[HEADER.name] = patch(header(version), version)
    assert tree(tmp_path) == {
        f"{KERNELS.as_posix()}/{path}": text for path, text in expected.items()
    }


def test_assembling_again_touches_nothing_unless_something_changed(tmp_path):
    assemble(tmp_path)
    kernels = tmp_path / KERNELS
    made = {path: path.stat().st_mtime_ns for path in kernels.rglob("*")}
    assemble(tmp_path)
    assert {path: path.stat().st_mtime_ns for path in kernels.rglob("*")} == made
    (tmp_path / HEADER).write_text("spoiled")
    (kernels / "stray.h").write_text("stray")
    assemble(tmp_path)
    assert (tmp_path / HEADER).read_text() == patch(header("0.31"), "0.31")
    assert not (kernels / "stray.h").exists()


def test_headers_that_drifted_leave_an_assembled_tree_as_it_was(tmp_path):
    assemble(tmp_path / "out")
    before = tree(tmp_path / "out")
    shutil.copytree(include_folder("0.31"), tmp_path / "include")
    (tmp_path / "include" / HEADER).write_text("// rewritten upstream\n")
    with pytest.raises(UserError, match="matches 0 times"):
        assemble(tmp_path / "out", tmp_path / "include")
    assert tree(tmp_path / "out") == before


def test_a_build_assembles_without_what_it_builds(tmp_path):
    command = [sys.executable, "-m", "h2o_pack.kernels.sources", str(tmp_path / "out")]
    command += ["--include", str(include_folder("0.31"))]
    environment = {"PYTHONPATH": str(ROOT / "bridge")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "out" / HEADER).read_text() == patch(header("0.31"), "0.31")


def test_a_build_that_cannot_assemble_says_why(tmp_path, capsys):
    assert sources.main([str(tmp_path / "out"), "--include", str(tmp_path)]) == ExitCode.USAGE
    assert capsys.readouterr().err == (
        f"{tmp_path / HEADER} is missing. Give the include folder of an installed mlx.\n"
    )


KERNEL = """
constant bool wanted [[function_constant(1)]];
constant int
    count [[function_constant(2)]];
constant bool both =
    is_function_constant_defined(wanted) && is_function_constant_defined(count) && wanted;
constant float table[2] = {1, 2};
void f(device float* x [[buffer(3), function_constant(both)]]);
"""


def test_baked_constants_are_known_to_a_compiler_of_cpp():
    assert bake(KERNEL, {"wanted": "true", "elsewhere": "1"}) == (
        """
constexpr constant bool wanted = true;
constexpr constant int count = {};
constexpr constant bool both =
    true && false && wanted;
constant float table[2] = {1, 2};
void f(device float* x [[buffer(3), function_constant(both)]]);
"""
    )
