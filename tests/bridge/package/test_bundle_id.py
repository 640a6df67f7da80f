"""`ios --bundle-id`: the app's identifier, and the one that a maker has who gives none."""

from __future__ import annotations

import json

import pytest

from h2o_pack.errors import ExitCode
from tests.bridge import schemas


@pytest.fixture
def package(run, tmp_path):
    """Package the demo model without Vendor; return the result of the command."""

    def command(*options, name="Demo"):
        output = ("--output", tmp_path / name, "--no-vendor")
        return run("ios", "--model", "demo", "--max-kv", 96, *output, *options)

    return command


@pytest.fixture
def project(tmp_path):
    """Return a function that gives the text of a package's Xcode project."""
    place = "App/Chat.xcodeproj/project.pbxproj"
    return lambda name="Demo": (tmp_path / name / place).read_text("utf-8")


def identifier(result):
    assert result.exit_code == 0, result.stderr
    return schemas.check(json.loads(result.stdout), "ios")["bundle_id"]


def test_the_project_has_the_identifier_that_was_given(package, project):
    package("--bundle-id", "com.example.Chat", "--name", "My Chat")
    assert project().count('PRODUCT_BUNDLE_IDENTIFIER = "com.example.Chat";') == 2


def test_the_summary_names_the_app_and_its_identifier(package):
    result = package("--bundle-id", "com.example.Chat", "--name", "My Chat")
    assert "My Chat (com.example.Chat)" in " ".join(result.stdout.split())


def test_two_makers_of_one_model_get_two_identifiers(package, monkeypatch):
    found = []
    for home in ("/home/ann", "/home/bob"):
        monkeypatch.setenv("HOME", home)
        found.append(identifier(package("--dry-run", "--json")))
    assert len(set(found)) == 2


def test_an_identifier_stays_wherever_the_package_is_made_again(
    package, run, project, tmp_path, monkeypatch
):
    first = identifier(package("--json"))
    monkeypatch.setenv("HOME", "/home/another")
    again = package("--json")
    assert identifier(again) == first
    assert json.loads(again.stdout)["app"] == "kept"
    assert run("update", tmp_path / "Demo").exit_code == 0
    assert f'"{first}"' in project()


def test_another_identifier_is_for_a_new_scaffold(package, project, tmp_path):
    package("--bundle-id", "com.example.One")
    before = project()
    result = package("--bundle-id", "com.example.Two", "--json")
    assert (identifier(result), json.loads(result.stdout)["app"]) == (
        "com.example.Two",
        "outdated",
    )
    assert project() == before


def test_what_is_no_identifier_is_refused_beside_all_else_that_is_wrong(package, tmp_path):
    result = package("--bundle-id", "Chat", "--name", "x", "--max-kv", "1")
    assert result.exit_code == ExitCode.USAGE
    assert '--bundle-id "Chat" is not a bundle identifier' in result.stderr.replace("'", '"')
    assert not (tmp_path / "Demo").exists()
