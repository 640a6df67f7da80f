from __future__ import annotations

import importlib
import re
from pathlib import PurePosixPath
from posixpath import normpath

import click
import yaml

import h2o_py
from docs.docgen.command_line import walk
from h2o_pack.cli import main
from h2o_pack.errors import MEANINGS, ExitCode
from tests.docs.conftest import ROOT, SOURCES

EXTERNAL = re.compile(r"^(?:[a-z][a-z+.-]*:)?//", re.IGNORECASE)
CSS_ADDRESS = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)")


def test_every_page_of_the_sources_is_in_the_site(site):
    for path in SOURCES:
        page = path.replace("README.md", "index.md").removesuffix(".md")
        assert f"{page}.html" in site.pages


def test_every_page_can_be_reached_from_the_navigation(site):
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    assert settings["strict"] is True
    reached = {
        normpath((PurePosixPath(page.path).parent / link).as_posix())
        for page in site.pages.values()
        for link in page.navigation
    }
    assert set(site.pages) - {"404.html"} <= reached


def test_no_page_loads_anything_from_elsewhere(site):
    for page in site.pages.values():
        assert page.resources
        for address in page.resources:
            assert not EXTERNAL.match(address), f"{page.path} loads {address}"
        for style in page.styles:
            assert not external_addresses(style), page.path
        # The theme's script fetches these where a page asks for them.
        assert not page.classes & {"mermaid", "md-source"}, page.path
    for path, text in site.files("*.css").items():
        assert not external_addresses(text), path


def external_addresses(css: str) -> list[str]:
    found = (first or second for first, second in CSS_ADDRESS.findall(css))
    return [each for each in found if EXTERNAL.match(each)]


def test_every_command_has_a_section_with_its_options_and_an_example(site):
    page = site.pages["reference/command-line.html"]
    contexts = list(walk(click.Context(main, info_name="h2o-pack")))
    assert len(contexts) > 8
    source = page.text
    for context in contexts:
        assert context.command_path.replace(" ", "-") in page.places, context.command_path
        for parameter in context.command.get_params(context):
            for name in parameter.opts if isinstance(parameter, click.Option) else ():
                assert name in source, f"{context.command_path} {name}"
        if not isinstance(context.command, click.Group):
            assert context.command.epilog is not None
            example = context.command.epilog.partition("Example: ")[2]
            assert example.strip() in source


def test_every_public_python_name_is_in_the_reference(site):
    places = site.pages["reference/python.html"].places
    fast = importlib.import_module("h2o_py.fast")
    names = [
        f"h2o_py.fast.{name}"
        for name, value in vars(fast).items()
        if callable(value) and value.__module__ == fast.__name__ and not name.startswith("_")
    ]
    assert len(names) > 5
    assert {*names, *(f"h2o_py.{name}" for name in h2o_py.__all__)} <= places


def test_every_exit_code_is_in_the_reference_and_explained(site):
    reference = site.pages["reference/command-line.html"].text
    explained = site.pages["troubleshooting.html"].places
    for code in ExitCode:
        assert any(place.startswith(f"{int(code)}-") for place in explained), code
        assert MEANINGS[code] in " ".join(reference.split())
