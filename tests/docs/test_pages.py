"""What pages say is so: names, messages, figures, examples, promises."""

import argparse
import ast
import re
import shlex
from functools import cache
from importlib import import_module
from typing import get_args

import click
import pytest

from docs.docgen import answers, plan_pictures
from docs.docgen.command_line import walk
from docs.docgen.markdown import replaced
from h2o_pack.cli import main
from h2o_pack.cli.frame import full_help
from h2o_pack.devices.catalogue import catalogue
from h2o_pack.measure.evaluation.preset import PRESETS
from h2o_pack.memory import terms
from h2o_pack.plan.speed import estimate, recall_plan
from h2o_pack.plan.workload import workload_of
from h2o_pack.spec import CacheSpec
from h2o_py.__main__ import add_options
from tests.bridge.memory import described
from tests.docs.conftest import ROOT, SOURCES
from tests.nightly import nightly_except

WRITTEN_BY_PROGRAMS = ("results/",)
PAGES = {
    path: text for path, text in SOURCES.items() if not path.startswith(WRITTEN_BY_PROGRAMS)
}
PAGES |= {
    f"../{name}": (ROOT / name).read_text("utf-8") for name in ("README.md", "CONTRIBUTING.md")
}
CODE = re.compile(r"`([^`\n]+)`")
FENCE = re.compile(r"^ *```sh\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
NAME = re.compile(r"\b(h2o_py|h2o_pack)((?:\.\w+)+)(?!\w*[/.]\w)")
FOLDERS = "tests|bridge|h2o_py|metal|cexport|swift_templates|docs|facts|interface"
FILE = re.compile(rf"(?:^|\s)((?:{FOLDERS})/[\w./-]*\w)(?=$|[\s:,])")


def commands() -> dict[tuple[str, ...], click.Command]:
    contexts = walk(click.Context(main, info_name="h2o-pack"))
    return {tuple(context.command_path.split()[1:]): context.command for context in contexts}


def calls(text: str) -> list[str]:
    """Return what a page shows as calls of the program, without what reads their output."""
    lines = [line for block in FENCE.findall(text) for line in block.splitlines()]
    return [
        line.partition(" | ")[0].strip()
        for line in [*lines, *CODE.findall(text)]
        if re.match(r"\s*h2o-pack ", line)
    ]


def wrong_part(call: str) -> str:
    """Return the part of a call that does not exist, or nothing."""
    words = [word for word in shlex.split(call, comments=True)[1:] if word != "..."]
    all_commands = commands()
    path: tuple[str, ...] = ()
    while words and (*path, words[0]) in all_commands:
        path = (*path, words.pop(0))
    command = all_commands[path]
    if words and isinstance(command, click.Group) and not words[0].startswith("-"):
        alternatives = words[0].split("|")
        if words[0] == "COMMAND" or all(
            (*path, alternative) in all_commands for alternative in alternatives
        ):
            return ""
        return words[0]
    options = {
        name for param in command.params for name in (*param.opts, *param.secondary_opts)
    }
    options |= {"--help", "--help-all"}
    flags = [word.partition("=")[0] for word in words if word.startswith("-") and word != "-"]
    return next((word for word in flags if word not in options), "")


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_options_exist(page):
    for call in calls(PAGES[page]):
        assert not wrong_part(call), f"{call!r} has {wrong_part(call)!r}"


def test_a_command_or_option_that_does_not_exist_is_found():
    assert wrong_part("h2o-pack ios --model demo --max-kv 64") == ""
    assert wrong_part("h2o-pack nothing") == "nothing"
    assert wrong_part("h2o-pack ios --nothing 3") == "--nothing"
    assert sum(len(calls(text)) for text in SOURCES.values()) > 20


FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*[a-z0-9]")
OF_OTHERS = {
    "--always-make", "--entitlements", "--fail", "--force", "--hf-path", "--install", "--no",
    "--output-path", "--package-path", "--range", "--scratch-path", "--sdk", "--train",
    "--modle", "--no-install-recommends", "--trust-remote-code", "--write", "--write-out",
    "--wrong",
}  # fmt: skip
"""Options of other programs and of our own tools, and wrong ones."""


CALLS_OTHERS = ("parity", "vendoring", "verify")
"""Folders whose strings are also options of git and Swift; golden messages have their texts."""


def sentences() -> dict[str, str]:
    """Return what users read of the program: pages, messages, and sentences of the sources."""
    golden = (ROOT / "tests/golden").rglob("*.txt")
    templates = (ROOT / "bridge/h2o_pack/package/templates").rglob("*.j2")
    texts = {str(path): path.read_text("utf-8") for path in (*golden, *templates)}
    for folder in ("bridge", "h2o_py"):
        for path in (ROOT / folder).rglob("*.py"):
            if path.parent.name in CALLS_OTHERS:
                continue
            nodes = ast.walk(ast.parse(path.read_text("utf-8")))
            strings = (n.value for n in nodes if isinstance(n, ast.Constant))
            texts[str(path)] = "\n".join(s for s in strings if isinstance(s, str) and " " in s)
    return PAGES | texts


def test_every_option_that_a_text_names_is_in_a_help():
    of_generate = argparse.ArgumentParser()
    add_options(of_generate)
    helps = [full_help(context) for context in walk(click.Context(main, info_name="h2o-pack"))]
    known = set(FLAG.findall("\n".join([*helps, of_generate.format_help()])))
    known |= {"--help-all", *OF_OTHERS}
    unknown = {
        (flag, path)
        for path, text in sentences().items()
        for flag in FLAG.findall(text)
        if flag not in known
    }
    assert not unknown


def test_every_preset_that_a_text_names_exists():
    named = {
        (preset, path)
        for path, text in sentences().items()
        if not path.endswith("refusals.txt")  # calls that are refused
        for preset in re.findall(r"--preset (\w+)", text)
    }
    assert {preset for preset, _ in named} <= set(PRESETS), named


def test_help_names_the_option_that_shows_what_it_leaves_out():
    for context in walk(click.Context(main, info_name="h2o-pack")):
        hidden = [p for p in context.command.params if getattr(p, "hidden", False)]
        assert ("--help-all" in context.get_help()) == bool(hidden)
        shown = set(FLAG.findall(full_help(context)))
        assert {option for p in hidden for option in p.opts} <= shown


def resolves(package: str, rest: str) -> bool:
    """Whether a dotted name leads to a module or something in one."""
    value = import_module(package)
    path = package
    for part in rest.strip(".").split("."):
        path = f"{path}.{part}"
        if hasattr(value, part):
            value = getattr(value, part)
            continue
        try:
            value = import_module(path)
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
    targets = re.findall(r"(?:^|`)make ([a-z-]+)", PAGES[page], re.MULTILINE)
    assert targets
    assert set(targets) <= set(re.findall(r"^([a-z][\w-]*):", makefile, re.MULTILINE))


def test_the_terms_of_the_memory_plan_are_those_of_the_code():
    rows = re.findall(
        r"^\| ([\w ]+) \| .* \| (\w+) \|$", SOURCES["memory-plan.md"], re.MULTILINE
    )
    assert rows.pop(0) == ("term", "source")
    assert [name for name, _ in rows] == list(terms.ALL)
    beside = set(re.findall(r"\(`(\w+)`\) \|", SOURCES["memory-plan.md"]))
    assert {term for _, term in rows} | beside == set(get_args(terms.Known))


QUOTED = re.compile(r"^\| `([^`]+)` \|", re.MULTILINE)


def test_quoted_messages_are_printed():
    refusals = (ROOT / "tests/golden/pages/refusals.txt").read_text("utf-8")
    messages = QUOTED.findall(SOURCES["troubleshooting.md"])
    assert len(messages) >= 4
    for message in messages:
        assert all(part.strip() in refusals for part in message.split("...")), message


STALE = "run make pages"


@pytest.fixture(scope="module")
def memory():
    return plan_pictures.planned()


@pytest.mark.parametrize("theme", nightly_except(["light"], plan_pictures.PALETTES))
def test_the_chart_shows_what_the_plan_counts(memory, theme, tmp_path):
    drawn = tmp_path / "chart.svg"
    plan_pictures.draw(memory, plan_pictures.PALETTES[theme], drawn)
    committed = plan_pictures.IMAGES / f"memory-{theme}.svg"
    assert drawn.read_text("utf-8") == committed.read_text("utf-8"), STALE


def test_only_the_full_cache_in_16_bits_crosses_the_limit_and_the_bounded_one_hardly_grows(
    memory,
):
    grown = [sizes[-1] - sizes[0] for sizes in (memory.bounded, *memory.full)]
    assert sorted(grown) == [grown[0], *reversed(grown[1:])]
    assert 10 * grown[0] < grown[1]
    sixteen, *fewer = memory.full
    assert sixteen[0] < memory.limit < sixteen[-1]
    assert all(memory.bounded[-1] < sizes[-1] < memory.limit for sizes in fewer)


def test_what_recall_costs_a_token_is_what_the_plan_estimates():
    page = (ROOT / "docs/memory-plan.md").read_text("utf-8")
    options = {
        "512 rows, `--no-recall`": {"max_kv": 512, "recall": False},
        "512 rows and recall": {"max_kv": 512},
        "every token in 4 bits": {"kv": "4"},
    }
    devices = [catalogue().find(name)[0] for name in ("iPhone 15 Pro", "iPad Pro 11-inch (M4)")]
    for name, settings in options.items():
        workload = workload_of(described.model(), CacheSpec(context=16384, **settings))
        recall = recall_plan(workload)
        speeds = [estimate(workload, device) for device in devices]
        times = []
        for speed in speeds:
            slow, fast = (f"{1000 / rate:.0f}" for rate in speed.tokens_per_second)
            times.append(fast if fast == slow else f"{fast} to {slow}")
        memory, flash = speeds[0].bytes_per_token, recall.token_read_bytes if recall else 0
        cells = (name, f"{memory / 1e6:,.0f}", f"{flash / 1e6:.0f}", *times)
        assert f"| {' | '.join(cells)} |" in page
    hand_overs = 2 * len(described.model().config.layers)
    assert f"the {hand_overs} hand-overs" in page


def test_what_recall_costs_a_prompt_is_what_follows_from_its_logits():
    page = " ".join((ROOT / "docs/memory-plan.md").read_text("utf-8").split())
    config, tokens = described.model().config, 16384
    logits = len(config.layers) * config.heads * 512 * tokens
    moved = 20 * logits  # written, read for total, read and written by softmax, read
    assert f"{logits / 1e9:.1f} billion logits" in page
    assert f"{moved / 1e9:.0f} GB in all" in page
    devices = [catalogue().find(name)[0] for name in ("iPhone 15 Pro", "iPad Pro 11-inch (M4)")]
    phone, tablet = (moved / (0.8 * device.bandwidth) for device in devices)
    assert f"{phone:.1f} seconds on an iPhone 15 Pro and {tablet:.1f} on an iPad" in page
    arithmetic = 2 * 2 * logits * config.layers[0].key_dim / 2e12
    assert f"{arithmetic:.1f} seconds of arithmetic" in page


def test_the_sample_is_what_the_command_prints():
    page = plan_pictures.PAGE.read_text("utf-8")
    assert replaced(page, plan_pictures.MARK, plan_pictures.sample()) == page, STALE


def test_the_tables_of_answers_show_what_was_measured():
    for path, text in answers.files().items():
        assert path.read_text("utf-8") == text, STALE


PAGE = (ROOT / "docs/security.md").read_text("utf-8")
TRUSTED = "What is trusted"
TEST = re.compile(r"`(test[_A-Z]\w*)`")
DEFINED = re.compile(r"^ *(?:async )?(?:def|func) (test\w+)", re.MULTILINE)
PROMISES = [
    item.strip()
    for section in PAGE.split("\n## ")[1:]
    if not section.startswith(TRUSTED)
    for item in section.split("\n- ")[1:]
]


@cache
def defined(*patterns: tuple[str, str]) -> set[str]:
    sources = (path for folder, pattern in patterns for path in (ROOT / folder).rglob(pattern))
    return {name for path in sources for name in DEFINED.findall(path.read_text("utf-8"))}


@pytest.mark.parametrize("promise", PROMISES, ids=lambda text: text[:40])
def test_a_promise_names_tests_or_says_that_nothing_protects(promise):
    tests = TEST.findall(promise)
    assert bool(tests) != promise.startswith("Not protected: ")
    assert set(tests) <= defined(("tests", "test_*.py"), ("swift_templates/Tests", "*.swift"))
    assert not tests or promise.rpartition("`")[2] == "", "tests stand behind the promise"


def test_nothing_is_promised_outside_of_the_lists():
    assert len(PROMISES) > 40
    introductions = [
        text for section in PAGE.split("\n## ")[1:] for text in section.split("\n\n")[1:]
        if not text.startswith("- ")
    ]  # fmt: skip
    assert introductions == ["A model is data from somebody else, and may be hostile."]
