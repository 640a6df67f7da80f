"""The programs that make the reference pages, on small sources and on the real ones."""

import re
from pathlib import Path

import click
import msgspec
import pytest

from docs.docgen import command_line, facts, markdown, pages, policy, schemas, swift_api
from h2o_pack import results
from h2o_pack.cli import frame, main
from h2o_pack.errors import MEANINGS, ExitCode
from h2o_pack.facts import FOLDER
from interface.source import read
from tests.docs.conftest import SOURCES

SWIFT = """
import Foundation

/// Keeps things.
///
/// It uses ``Other/keep(_:)``:
/// - Parameters:
///   - first: what is kept
/// - Throws: nothing
@available(iOS 17, *)
public struct Keeper: Sendable {
    /// How many.
    public let count = 3
    let hidden = "} public func no() {"

    /// Keeps one.
    @discardableResult
    public func keep(
        _ first: Int, then: () -> Void = { work() }
    ) throws -> Bool {
        struct Inside { public let no = 1 }
        return true
    }

    public enum Kind {
        /// The only one.
        case plain(Int)
    }
}

extension Keeper {
    /// All of them.
    public static var all: [Keeper] { [] }
}

/// What keeps.
public protocol Keeping {
    /// It does.
    func does() -> Int
}

struct Private {
    public var no: Int { 1 }
}
"""


def swift_page(text: str, folder: Path) -> str:
    path = folder / "Keeper.swift"
    path.write_text(text)
    return "\n".join(swift_api.types([path]))


def test_public_swift_declarations_are_listed_with_their_comments(tmp_path):
    page = swift_page(SWIFT, tmp_path)
    assert page.index("### Keeper\n") < page.index("Keeps things.")
    assert "public struct Keeper: Sendable\n" in page
    assert "public let count\n" in page
    assert "throws -> Bool\n```\n\nKeeps one." in page
    assert "### Keeper.Kind" in page
    assert "case plain(Int)\n```\n\nThe only one." in page
    assert "public static var all: [Keeper]\n```\n\nAll of them." in page
    assert "func does() -> Int\n```\n\nIt does." in page
    assert "`Other.keep(_:)`" in page
    assert "- Parameters:\n    - first: what is kept\n- Throws: nothing" in page


def test_what_is_not_public_is_left_out(tmp_path):
    page = swift_page(SWIFT, tmp_path)
    assert "hidden" not in page
    assert "Inside" not in page
    assert "work()" in page  # a default argument is part of the declaration
    assert "return true" not in page


def test_every_public_line_of_the_libraries_is_on_the_page():
    page = swift_api.sections()
    count = len(re.findall(r"^(?:public|open) ", page, re.MULTILINE))
    sources = [
        *(swift_api.TEMPLATES / "Download/H2OKit").rglob("*.swift"),
        *(swift_api.TEMPLATES / "H2OChatScreen").rglob("*.swift"),
        *(swift_api.TEMPLATES / "H2OFoundationModels").rglob("*.swift"),
        *(swift_api.TEMPLATES / "H2OKit").rglob("*.swift"),
        *(swift_api.TEMPLATES / "H2OSessions").rglob("*.swift"),
        *(swift_api.TEMPLATES / "Model").glob("*.swift*"),
        *(swift_api.TEMPLATES / "Several/Model").glob("*.swift*"),
    ]
    texts = "\n".join(path.read_text("utf-8") for path in sources)
    declared = len(re.findall(r"^\s*(?:public|open) ", texts, re.MULTILINE))
    assert count == declared > 150


def test_every_entry_of_the_facts_is_on_the_page():
    page = pages.filled(SOURCES["reference/facts.md"])
    page = " ".join(page.split())
    for path in sorted(FOLDER.glob("*.toml")):
        assert f"## {path.stem} " in page
        for rows in msgspec.toml.decode(path.read_text("utf-8")).values():
            for row in rows if facts.is_rows(rows) else ():
                for value in (row[key] for key in row if key not in facts.HIDDEN):
                    spellings = (facts.cell(value).replace("|", "\\|"), f"`{value}`")
                    assert any(text in page for text in spellings), (path.name, value)


def test_every_setting_storage_and_error_is_on_the_page():
    source, page = read(), policy.sections()
    names = [entry.name for entry in (*source.fields, *source.policy.policy)]
    names += [entry.name for entry in (*source.policy.score, *source.storages.storage)]
    names += [entry.code for entry in (*source.errors.error, *source.errors.warning)]
    for name in names:
        assert f"| `{name}` |" in page, name


def test_every_schema_is_on_the_page():
    page = schemas.sections()
    assert results.RESULTS
    for name in results.RESULTS:
        assert f"## {name}\n" in page


def test_the_committed_schemas_are_those_of_the_results():
    committed = {path.name: path.read_text("utf-8") for path in schemas.FOLDER.iterdir()}
    assert committed == schemas.files(), "run make pages"


COMMON = {name for names in frame.COMMON for name in names}


def test_every_command_and_option_and_every_exit_code_is_on_the_page():
    page = command_line.sections()
    for context in command_line.walk(click.Context(main, info_name="h2o-pack")):
        section = page.partition(f"\n## {context.command_path}\n")[2].partition("\n## ")[0]
        for parameter in context.command.params:
            options = parameter.opts if isinstance(parameter, click.Option) else ()
            place = page if set(options) <= COMMON else section
            assert all(name in place for name in options), context.command_path
    for code in ExitCode:
        assert MEANINGS[code] in page
        assert f"\n### {int(code)}: " in SOURCES["troubleshooting.md"]


def test_text_is_kept_from_becoming_markup():
    assert markdown.plain("a*b*c [x] `d*e*` <f>") == "a\\*b\\*c \\[x\\] `d*e*` &lt;f\\>"
    assert markdown.plain("    code * here") == "    code * here"
    assert markdown.table(["a"], [["x|y\nz"]]) == "| a |\n| --- |\n| x\\|y z |"


def test_every_reference_page_is_filled_in():
    whole = ("reference/python.md",)
    for path, text in SOURCES.items():
        if path.startswith("reference/") and path not in whole:
            assert len(pages.filled(text)) > 3 * len(text), path


def test_a_mark_with_an_unknown_name_is_refused():
    with pytest.raises(KeyError, match="nothing"):
        pages.filled("<!-- generated: nothing -->")
