from __future__ import annotations

import pytest

from h2o_pack import assets
from h2o_pack.errors import ExitCode, UserError
from h2o_pack.vendoring.edits import EDITS, Edit, apply, apply_all, read_edits
from h2o_pack.vendoring.vendor import added_files

TEXT = "#include <a>\n#include <b>\n\nint f() {\n  return 1;\n}\n"


def edit(anchor: str, where: str, text: str, count: int = 1) -> Edit:
    key = "replacement" if where == "replace" else "insert"
    return Edit("mlx-swift", "Source/f.cpp", anchor, where, count=count, **{key: text})


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
    with pytest.raises(UserError) as caught:
        apply(TEXT, edit(anchor, "after", "x\n"))
    assert caught.value.code == ExitCode.VERSION
    assert str(caught.value) == (
        f"anchor '{anchor}' matches {found} times instead of 1 "
        "(mlx-swift/Source/f.cpp, expected as in mlx-swift 0.31.6). "
        "Give --upstream the sources of mlx-swift 0.31.6."
    )


def test_edits_of_one_file_that_would_not_be_recognised_are_refused():
    first = edit(r"^#include <a>$", "after", "// one\n")
    second = edit(r"^#include <a>$", "after", "// two\n")
    with pytest.raises(ValueError, match="would apply twice"):
        apply_all(TEXT, [first, second])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'where = "under"\ninsert = "x\\n"',
            "where = 'under' is none of after, before, replace",
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
    with pytest.raises(ValueError, match=message):
        read_edits(path)


def test_entries_for_another_host_are_left_out(tmp_path):
    path = tmp_path / "edits.toml"
    path.write_text(
        "".join(
            f'[[copy]]\npackage = "p"\npath = "{host or "all"}"\nonly = "{host}"\n'
            for host in ("", "linux", "apple")
        )
    )
    paths = [copy.path for copy in read_edits(path).for_host("linux").copies]
    assert paths == ["all", "linux"]


def test_the_edits_that_ship_are_readable_and_their_files_exist():
    edits = read_edits(assets.root() / EDITS)
    assert {copy.package for copy in edits.for_host("apple").copies} == {
        "mlx-swift",
        "mlx-swift-lm",
        "swift-collections",
        "swift-jinja",
        "swift-tokenizers",
        "yyjson",
    }
    ours = added_files(assets.root(), edits.files)
    assert "mlx-swift/Source/Cmlx/include/mlx/c/h2o.h" in ours
    assert "mlx-swift/Source/Cmlx/h2o/h2o.cpp" in ours
    assert "mlx-swift/Source/MLX/MLXFast+H2O.swift" in ours
    assert "mlx-swift-lm/Libraries/MLXLMCommon/RoutedAttentionCache.swift" in ours
