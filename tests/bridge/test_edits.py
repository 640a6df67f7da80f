"""Edits of upstream's sources, and the guards of those that only some targets compile."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from h2o_pack import assets
from h2o_pack.errors import ExitCode, UserError
from h2o_pack.files import lock
from h2o_pack.vendoring.edits import (
    Edit,
    EditSet,
    Guard,
    apply,
    apply_all,
    edits_of,
    read_edits,
)
from h2o_pack.vendoring.vendor import added_files, edit_sources
from tests.bridge.trees import build_tree, tree
from tests.messages import refused, says
from tests.processes import output_of
from tools.upstream import __main__ as upstream

TEXT = "#include <a>\n#include <b>\n\nint f() {\n  return 1;\n}\n"


def edit(anchor: str, where: str, text: str, count: int = 1) -> Edit:
    changes = {"replacement" if where == "replace" else "insert": text}
    return Edit("mlx-swift", "Source/f.cpp", anchor, where, count=count, **changes)


@pytest.mark.parametrize(
    ("change", "result"),
    [
        (
            edit(r"^#include <a>$", "after", "#include <h2o>\n"),
            TEXT.replace("<a>\n", "<a>\n#include <h2o>\n"),
        ),
        (
            edit(r"return", "before", "  // why\n"),
            TEXT.replace("  return", "  // why\n  return"),
        ),
        (edit(r"^\}$", "after", "// end\n"), TEXT + "// end\n"),
        (edit(r"return \d", "replace", "return 2 + 0"), TEXT.replace("1", "2 + 0")),
        (edit(r"return 1", "replace", "return 1 + 1"), TEXT.replace("1", "1 + 1")),
        (
            edit(r"^#include <.>\n", "replace", "// gone\n", count=2),
            TEXT.replace("#include <a>\n#include <b>\n", "// gone\n// gone\n"),
        ),
        (
            edit(r"^#include <.>$", "after", "// here\n", count=2),
            TEXT.replace("<a>\n", "<a>\n// here\n").replace("<b>\n", "<b>\n// here\n"),
        ),
    ],
)
def test_an_edit_changes_just_its_place_and_only_once(change, result):
    assert apply(TEXT, change) == result
    assert apply(result, change) == result


@pytest.mark.parametrize(("anchor", "count"), [("return 7", 0), ("include", 2)])
def test_an_anchor_that_drifted_names_file_anchor_count_and_version(anchor, count):
    says(refused(apply, TEXT, edit(anchor, "after", "x\n"), code=ExitCode.VERSION))


def test_all_anchors_that_drifted_are_named_at_once():
    lost = [edit(anchor, "after", "x\n") for anchor in ("return 7", "return 1", "return 8")]
    with pytest.raises(UserError) as error:
        apply_all(TEXT, lost)
    assert [problem.what for problem in error.value.errors] == [
        "the pattern 'return 7' of an edit matches 0 times instead of 1",
        "the pattern 'return 8' of an edit matches 0 times instead of 1",
    ]


def test_edits_of_one_file_that_would_not_be_recognised_are_refused():
    first = edit(r"^#include <a>$", "after", "// one\n")
    second = edit(r"^#include <a>$", "after", "// two\n")
    with pytest.raises(ValueError) as error:
        apply_all(TEXT, [first, second])
    says(error.value)


@pytest.mark.parametrize(
    "text",
    [
        'where = "after"',
        'where = "after"\ninsert = "x"',
        'where = "replace"\nreplacement = ""',
    ],
)
def test_edits_that_make_no_sense_are_refused_when_read(tmp_path, text):
    path = tmp_path / "edits.toml"
    path.write_text(f'[[edit]]\npackage = "p"\nfile = "f"\nanchor = "a"\n{text}\n')
    with pytest.raises(UserError, match="adds no line"):
        read_edits(path)


def test_an_edit_of_several_files_is_one_of_each(tmp_path):
    path = tmp_path / "edits.toml"
    path.write_text(
        '[[edit]]\npackage = "p"\nfile = "f"\nother_files = ["g", "h"]\nanchor = "a"\n'
        'where = "replace"\nreplacement = "b"\n'
    )
    edits = read_edits(path).by_file()
    expected = {
        ("p", name): [Edit("p", name, "a", "replace", replacement="b")] for name in "fgh"
    }
    assert edits == expected


def test_entries_for_another_host_are_left_out(tmp_path):
    path = tmp_path / "edits.toml"
    path.write_text(
        "".join(
            f'[[copy]]\npackage = "p"\npaths = ["{host or "all"}"]\nonly = "{host}"\n'
            for host in ("", "linux", "apple")
        )
    )
    paths = [copy.paths for copy in read_edits(path).applying("linux").copies]
    assert paths == [("all",), ("linux",)]


def test_the_edits_that_ship_are_readable_and_their_files_exist():
    edits = edits_of(assets.root())
    edited = {"mlx-swift", "mlx-swift-lm", "swift-transformers"}
    small = {"swift-collections", "swift-jinja", "swift-numerics", "yyjson"}
    for case, packages in (("shared", edited), ("offline", edited | small)):
        assert {copy.package for copy in edits.applying("apple", case).copies} == packages
    files = added_files(assets.root(), edits.files)
    assert "mlx-swift/Source/Cmlx/include/mlx/c/h2o.h" in files
    assert "mlx-swift/Source/Cmlx/h2o/h2o.cpp" in files
    assert "mlx-swift/Source/Cmlx/h2o/metal/h2o_parameters.h" in files
    assert "mlx-swift/Source/Cmlx/h2o/metal/kernel_text.cpp" in files
    assert not [path for path in files if "/mlx-generated/" in path]
    assert "mlx-swift/Source/MLX/MLXFast+H2OLayerCache.swift" in files
    assert "mlx-swift-lm/Libraries/MLXLMCommon/RoutedAttentionCache.swift" in files


# Guards: MLX's backends, of which each target has one


BACKEND = "Source/Cmlx/mlx/mlx/backend"
# One file of each folder, and the two of which only one may be there.
SOURCES = {
    f"mlx-swift/{BACKEND}/{name}.cpp": f'const char* {symbol}() {{\n  return "{side}";\n}}\n'
    for name, symbol, side in (
        ("gpu/copy", "copied_by", "GPU"),
        ("no_gpu/primitives", "copied_by", "CPU"),
        ("metal/metal", "run_by", "GPU"),
        ("metal/no_metal", "run_by", "CPU"),
        ("cpu/copy", "also", "CPU"),
    )
}
MAIN = """
#include <cstdio>
const char* copied_by();
const char* run_by();
const char* also();
int main() {
  std::printf("%s %s %s", copied_by(), run_by(), also());
}
"""
GUARD = Guard("mlx-swift", ("a/*.cpp", "b/**/*.cpp"), "C", count=1)


def with_guards(*guards: Guard) -> EditSet:
    return EditSet((), (), (), guards)


def shipped() -> EditSet:
    """The guards of packages, for as many files as there are here."""
    guards = edits_of(assets.root()).applying("apple").guards
    assert [guard.count for guard in guards] == [37, 7]
    return with_guards(*(replace(guard, count=2) for guard in guards))


@pytest.fixture
def vendor(tmp_path) -> Path:
    return build_tree(tmp_path / "Vendor", SOURCES)


def built(vendor: Path, folder: Path, *, simulator: bool) -> str:
    """Compile all of a folder, of which each function has one definition, and run it."""
    headers = build_tree(folder / "headers", {"TargetConditionals.h": ""})
    main = build_tree(folder, {"main.cpp": MAIN}) / "main.cpp"
    compiler = shutil.which("c++") or shutil.which("clang++")
    assert compiler
    options = [
        f"-DTARGET_OS_SIMULATOR={int(simulator)}",
        f"-I{headers}",
        "-o",
        folder / "program",
    ]
    output_of(compiler, *options, main, *vendor.rglob("*.cpp"))
    return output_of(folder / "program")


@pytest.mark.parametrize(("simulator", "text"), [(True, "CPU CPU CPU"), (False, "GPU GPU CPU")])
def test_a_simulator_has_the_backend_without_a_gpu_and_a_device_the_other(
    vendor, tmp_path, simulator, text
):
    edit_sources(vendor, shipped())
    assert built(vendor, tmp_path / "build", simulator=simulator) == text


def test_each_changed_file_is_recorded(vendor):
    before = tree(vendor)
    files = {file.path: file for file in edit_sources(vendor, shipped())}
    after = tree(vendor)
    assert {name for name in before if before[name] != after[name]} == set(files)
    for name, file in files.items():
        assert file.before == lock.sha256(before[name].encode())
        assert file.after == lock.sha256(after[name].encode())


def test_on_linux_nothing_is_guarded():
    assert edits_of(assets.root()).applying("linux").guards == ()


def test_files_that_upstream_added_or_took_away_are_refused_together(tmp_path):
    build_tree(tmp_path / "mlx-swift", dict.fromkeys(("b/x.cpp", "b/in/y.cpp", "c/x.cpp"), ""))
    upstream = "mlx-swift 0.31.6"
    expected = f"(mlx-swift, expected as in {upstream}). Use the sources of {upstream}."
    guards = with_guards(GUARD, replace(GUARD, paths=("c/*.cpp",), without=("x.cpp",)))
    assert refused(edit_sources, tmp_path, guards, code=ExitCode.VERSION).splitlines() == [
        f"2 files match a/*.cpp and b/**/*.cpp instead of 1 {expected}",
        f"0 files match c/*.cpp instead of 1 {expected}",
    ]


def test_a_file_that_upstream_added_has_drifted(tmp_path):
    as_expected = build_tree(tmp_path, {"b/x.cpp": ""})
    assert list(upstream.lost_files(as_expected, GUARD)) == []
    (drift,) = upstream.lost_files(build_tree(tmp_path, {"a/new.cpp": ""}), GUARD)
    assert drift.file == str(tmp_path)
    assert drift.expected == "the files of mlx-swift 0.31.6"
    assert drift.found.startswith("2 files match a/*.cpp and b/**/*.cpp instead of 1")
