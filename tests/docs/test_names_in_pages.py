"""What pages name exists: commands and options, Python names, files, messages, figures."""

from __future__ import annotations

import re
import shlex
from importlib import import_module
from typing import get_args

import click
import pytest

from docs.docgen.command_line import walk
from h2o_pack.cli import main
from h2o_pack.memory import terms
from tests.docs.conftest import ROOT, SOURCES

WRITTEN_BY_PROGRAMS = ("performance.md", "results/")
PAGES = {
    path: text for path, text in SOURCES.items() if not path.startswith(WRITTEN_BY_PROGRAMS)
}
PAGES |= {
    f"../{name}": (ROOT / name).read_text("utf-8") for name in ("README.md", "CONTRIBUTING.md")
}
CODE = re.compile(r"`([^`\n]+)`")
FENCE = re.compile(r"^ *```sh\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
NAME = re.compile(r"\b(h2o_py|h2o_pack)((?:\.\w+)+)(?!\w*[/.]\w)")
FOLDERS = "tests|bridge|h2o_py|metal|cexport|swift_templates|docs|facts|interface|studies"
FILE = re.compile(rf"(?:^|\s)((?:{FOLDERS})/[\w./-]*\w)(?=$|[\s:,])")


def commands() -> dict[tuple[str, ...], click.Command]:
    contexts = walk(click.Context(main, info_name="h2o-pack"))
    return {tuple(each.command_path.split()[1:]): each.command for each in contexts}


def calls(text: str) -> list[str]:
    """Return what a page shows as calls of the program, without what reads their output."""
    lines = [line for block in FENCE.findall(text) for line in block.splitlines()]
    return [
        each.partition(" | ")[0].strip()
        for each in [*lines, *CODE.findall(text)]
        if re.match(r"\s*h2o-pack ", each)
    ]


def wrong_part(call: str) -> str:
    """Return the part of a call that does not exist, or nothing."""
    words = [word for word in shlex.split(call, comments=True)[1:] if word != "..."]
    known = commands()
    path: tuple[str, ...] = ()
    while words and (*path, words[0]) in known:
        path = (*path, words.pop(0))
    command = known[path]
    if words and isinstance(command, click.Group) and not words[0].startswith("-"):
        alternatives = words[0].split("|")
        if words[0] == "COMMAND" or all((*path, each) in known for each in alternatives):
            return ""
        return words[0]
    options = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    options.add("--help")
    given = [word.partition("=")[0] for word in words if word.startswith("-") and word != "-"]
    return next((word for word in given if word not in options), "")


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_options_exist(page):
    for call in calls(PAGES[page]):
        assert not wrong_part(call), f"{call!r} has {wrong_part(call)!r}"


def test_a_command_or_option_that_does_not_exist_is_found():
    assert wrong_part("h2o-pack ios --model demo --max-kv 64") == ""
    assert wrong_part("h2o-pack nothing") == "nothing"
    assert wrong_part("h2o-pack ios --nothing 3") == "--nothing"
    assert wrong_part("h2o-pack policy nothing") == "nothing"
    assert sum(len(calls(text)) for text in SOURCES.values()) > 20


def resolves(package: str, rest: str) -> bool:
    """Whether a dotted name leads to a module or something in one."""
    found = import_module(package)
    path = package
    for part in rest.strip(".").split("."):
        path = f"{path}.{part}"
        if hasattr(found, part):
            found = getattr(found, part)
            continue
        try:
            found = import_module(path)
        except (ModuleNotFoundError, TypeError):
            return False
    return True


@pytest.mark.parametrize("page", PAGES)
def test_python_names_exist(page):
    for code in CODE.findall(PAGES[page]):
        for package, rest in NAME.findall(code):
            assert resolves(package, rest), f"{package}{rest}"


def test_a_python_name_that_does_not_exist_is_found():
    assert resolves("h2o_py", ".H2OConfig.paper")
    assert resolves("h2o_pack", ".vendoring.edits")
    assert not resolves("h2o_py", ".H2OConfig.nothing")
    assert not resolves("h2o_pack", ".vendoring.nothing")


@pytest.mark.parametrize("page", PAGES)
def test_files_exist(page):
    for code in CODE.findall(PAGES[page]):
        for name in FILE.findall(code):
            places = [ROOT / name, ROOT / "bridge/h2o_pack" / name]
            assert any(place.exists() for place in places), f"{page}: {name}"


@pytest.mark.parametrize("page", ["../README.md", "../CONTRIBUTING.md"])
def test_make_targets_exist(page):
    makefile = (ROOT / "Makefile").read_text("utf-8")
    named = re.findall(r"(?:^|`)make ([a-z-]+)", PAGES[page], re.MULTILINE)
    assert named
    assert set(named) <= set(re.findall(r"^([a-z][\w-]*):", makefile, re.MULTILINE))


def test_the_terms_of_the_memory_plan_are_those_of_the_code():
    rows = re.findall(
        r"^\| ([\w ]+) \| .* \| (\w+) \|$", SOURCES["memory-plan.md"], re.MULTILINE
    )
    assert rows.pop(0) == ("term", "source")
    assert [name for name, _ in rows] == list(terms.ALL)
    beside = set(re.findall(r"\(`(\w+)`\) \|", SOURCES["memory-plan.md"]))
    assert {known for _, known in rows} | beside == set(get_args(terms.Known))


QUOTED = re.compile(r"^\| `([^`]+)` \|", re.MULTILINE)


def test_quoted_messages_are_printed():
    printed = (ROOT / "tests/golden/pages/refusals.txt").read_text("utf-8")
    messages = QUOTED.findall(SOURCES["troubleshooting.md"])
    assert len(messages) >= 4
    for message in messages:
        assert all(part.strip() in printed for part in message.split("...")), message


INTERVAL = re.compile(r"(\d\.\d\d) [(\[](\d\.\d\d)(?: to |, )(\d\.\d\d)[)\]]")


def test_intervals_are_those_of_the_evaluation():
    measured = set(INTERVAL.findall(SOURCES["results/eval/README.md"]))
    quoted = set(INTERVAL.findall(SOURCES["choosing-max-kv.md"]))
    assert quoted
    assert quoted <= measured
