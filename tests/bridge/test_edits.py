from __future__ import annotations

import re

import pytest

from h2o_pack import assets
from h2o_pack.errors import ExitCode, UserError
from h2o_pack.facts import upstream_versions
from h2o_pack.vendoring.edits import FOLDER, Edit, apply, apply_all, edits_of, read_edits
from h2o_pack.vendoring.vendor import added_files
from tests.bridge.refusals import refused
from tests.messages import says

TEXT = "#include <a>\n#include <b>\n\nint f() {\n  return 1;\n}\n"


def edit(anchor: str, where: str, text: str, count: int = 1) -> Edit:
    key = "replacement" if where == "replace" else "insert"
    changes = {key: text, "count": count, "version": "0.31.6"}
    return Edit("mlx-swift", "Source/f.cpp", anchor, where, **changes)


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


def test_a_replacement_that_its_own_anchor_matches_is_made_only_once():
    change = edit(r"return 1", "replace", "return 1 + 1")
    assert apply(TEXT, change) == TEXT.replace("return 1", "return 1 + 1")
    assert apply(apply(TEXT, change), change) == apply(TEXT, change)


@pytest.mark.parametrize(("anchor", "found"), [("return 7", 0), ("include", 2)])
def test_an_anchor_that_drifted_names_file_anchor_count_and_version(anchor, found):
    says(refused(apply, TEXT, edit(anchor, "after", "x\n"), code=ExitCode.VERSION))


def test_all_anchors_that_drifted_are_named_at_once():
    lost = [edit(anchor, "after", "x\n") for anchor in ("return 7", "return 1", "return 8")]
    with pytest.raises(UserError) as caught:
        apply_all(TEXT, lost)
    assert [each.what for each in caught.value.errors] == [
        "anchor 'return 7' matches 0 times instead of 1",
        "anchor 'return 8' matches 0 times instead of 1",
    ]


@pytest.mark.parametrize("version", upstream_versions())
def test_an_anchor_of_one_upstream_version_that_drifted_names_that_version(version):
    [hook] = [e for e in edits_of(assets.root(), version).edits if "AttentionUtils" in e.file]
    with pytest.raises(UserError) as caught:
        apply(TEXT, hook)
    says(caught.value)


def test_edits_of_one_file_that_would_not_be_recognised_are_refused():
    first = edit(r"^#include <a>$", "after", "// one\n")
    second = edit(r"^#include <a>$", "after", "// two\n")
    with pytest.raises(ValueError) as caught:
        apply_all(TEXT, [first, second])
    says(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'where = "under"\ninsert = "x\\n"',
            "Invalid enum value 'under'",
        ),
        ('where = "after"', "adds no line"),
        ('where = "after"\ninsert = "x"', "adds no line"),
        ('where = "replace"\nreplacement = ""', "adds no line"),
        ('where = "after"\ninsert = "x\\n"\ntwice = true', "unknown key 'twice'"),
    ],
)
def test_edits_that_make_no_sense_are_refused_when_read(tmp_path, text, message):
    path = tmp_path / "edits.toml"
    path.write_text(f'[[edit]]\npackage = "p"\nfile = "f"\nanchor = "a"\n{text}\n')
    with pytest.raises(UserError, match=message):
        read_edits(path)


def test_what_is_shared_holds_for_each_edit_that_does_not_say_otherwise(tmp_path):
    path = tmp_path / "edits.toml"
    path.write_text(
        '[shared]\npackage = "mlx"\nfile = "a.h"\nversion = "0.32.4"\nwhere = "after"\n'
        '[[edit]]\nanchor = "x"\ninsert = "1\\n"\n'
        '[[edit]]\nanchor = "y"\ninsert = "2\\n"\nfile = "b.h"\n'
    )
    assert read_edits(path).edits == (
        Edit("mlx", "a.h", "x", "after", "1\n", version="0.32.4"),
        Edit("mlx", "b.h", "y", "after", "2\n", version="0.32.4"),
    )


def test_edits_for_another_version_than_the_pinned_one_name_theirs():
    change = Edit("mlx", "a.h", "return 7", "after", "x\n", version="0.32.4")
    with pytest.raises(UserError) as caught:
        apply(TEXT, change)
    says(str(caught.value))


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
    edited = {"mlx-swift", "mlx-swift-lm", "swift-tokenizers"}
    small = {"swift-collections", "swift-jinja", "swift-numerics", "yyjson"}
    for case, packages in (("shared", edited), ("offline", edited | small)):
        assert {copy.package for copy in edits.applying("apple", case).copies} == packages
    ours = added_files(assets.root(), edits.files)
    assert "mlx-swift/Source/Cmlx/include/mlx/c/h2o.h" in ours
    assert "mlx-swift/Source/Cmlx/h2o/h2o.cpp" in ours
    assert "mlx-swift/Source/Cmlx/h2o/metal/h2o_parameters.h" in ours
    assert "mlx-swift/Source/Cmlx/h2o/metal/kernel_text.cpp" in ours
    assert not [path for path in ours if "/mlx-generated/" in path]
    assert "mlx-swift/Source/MLX/MLXFast+H2OLayerCache.swift" in ours
    assert "mlx-swift-lm/Libraries/MLXLMCommon/RoutedAttentionCache.swift" in ours


def test_a_version_without_a_grammar_engine_names_one_that_has_it():
    folder = assets.root() / FOLDER
    engines = {
        name: (folder / name / "GrammarEngine.swift").read_text("utf-8")
        for name in upstream_versions()
    }
    with_engine = {
        name for name, text in engines.items() if "import MLXGuidedGeneration" in text
    }
    named = {
        name: set(re.findall(r'noEngine\(version: "(.*)"\)', text))
        for name, text in engines.items()
    }
    assert with_engine
    for name in engines:
        assert bool(named[name]) == (name not in with_engine)
        assert named[name] <= with_engine
