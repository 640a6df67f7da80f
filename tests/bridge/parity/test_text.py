"""Level 0: what the app's libraries for text answer, with a program that stands in for them."""

import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from h2o_pack import assets
from h2o_pack.errors import ExitCode
from h2o_pack.parity import swift, text, text_items, text_program
from h2o_pack.parity.parity_report import (
    DIFFERENT,
    EQUAL,
    CaseResult,
    Difference,
    Level,
    sentence,
)
from h2o_pack.parity.text_items import Item
from h2o_pack.progress import silent
from h2o_pack.resolved.table import decoder_of
from h2o_pack.vendoring.fetch import Origin
from tests.bridge.trees import build_tree, program, resolve
from tests.messages import refused, says

TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>\n{{ m['content'] }}<|endoftext|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
STOP = 0
FAKE = """\
import json, os, sys, time

request = json.loads(open(sys.argv[1]).read())
answers = json.loads(open({answers!r}).read())
for index, item in enumerate(request["items"][int(sys.argv[2]):], int(sys.argv[2])):
    answer = answers[json.dumps(item, sort_keys=True)]
    if answer.get("sleep"):
        time.sleep(60)
    if "signal" in answer:
        print("Main.swift:3: Fatal error: no such token", file=sys.stderr, flush=True)
        os.kill(os.getpid(), answer["signal"])
    print(json.dumps({{"item": index, **answer}}), flush=True)
"""


class App:
    """A program that answers as Python does, until its answers are spoilt."""

    def __init__(self, folder: Path, model: Path, items: list[Item]) -> None:
        self.folder, self.model, self.items = folder, model, items
        self.answers = {key(item.question): right(item) for item in items}
        self.program = folder / "h2o-text"

    def spoil(self, case: str, name: str = "", **answer: Any) -> Item:
        """Change the answer to the first item of a case whose name contains a text."""
        item = next(i for i in self.items if i.case == case and name in i.name)
        self.answers[key(item.question)].update(answer)
        return item

    def check(self) -> Level:
        answers = self.folder / "answers.json"
        answers.write_text(json.dumps(self.answers), "utf-8")
        script = self.folder / "fake.py"
        script.write_text(FAKE.format(answers=str(answers)), "utf-8")
        program(self.folder, "h2o-text", f'exec "{sys.executable}" -I -S "{script}" "$@"')
        return text.check_text(self.program, self.model, self.folder / "work", silent)

    def case(self, name: str) -> CaseResult:
        return next(case for case in self.check().cases if case.name == name)

    def says(self, name: str) -> None:
        """Compare how the first difference of a case reads."""
        first = self.case(name).first_difference
        assert first is not None
        says(sentence(first))


def key(question: Any) -> str:
    return json.dumps(question, sort_keys=True)


def right(item: Item) -> dict[str, Any]:
    """Return the answer that equals Python's."""
    if item.case == text_items.CONFIGURATION:
        decoder = decoder_of(item.answer["model_type"])
        assert decoder is not None
        values = {k: item.answer.get(k, v.default) for k, v in decoder.keys.items()}
        return {"values": {"configuration": values}}
    if item.case == text_items.IDS:
        streamed = {f"streamed_{name}": item.answer[name] for name in ("text", "plain")}
        return {**item.answer, **streamed}
    if item.case == text_items.TURNS:
        return {"turns": [{"ids": own(whole["ids"], n), "replaced": 0}
                          for n, whole in enumerate(item.answer["wholes"])]}  # fmt: skip
    return dict(item.answer)


def own(whole: list[int], turn: int) -> list[int]:
    """Return what a session reads: all, or what follows the last reply's end."""
    ends = [place for place, token in enumerate(whole) if token == STOP]
    return whole[ends[-2] + 1 :] if turn else whole


@pytest.fixture(scope="module")
def text_model(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("text") / "Model"
    shutil.copytree(resolve("demo").folder, folder)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    chat = {"template": True, "system": True, "tools": False, "stops": [STOP]}
    (folder / "manifest.json").write_text(json.dumps({"chat": chat}))
    return folder


@pytest.fixture(scope="module")
def items(text_model) -> list[Item]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_items, "RANDOM_IDS", 4)
        patch.setattr(text_items, "RANDOM_TEXTS", 8)
        return text_items.items(text_model, text.load(text_model), [STOP], tools=False)


SPOILT = ("the code of LANTERN", '"a"', '"b"', '"\\x00"', '"\\x1d"', "\u2167")
"""Parts of the names of texts and ids to which tests give a wrong answer."""


@pytest.fixture
def app(tmp_path, text_model, items, monkeypatch) -> App:
    few = [
        item
        for number, item in enumerate(items)
        if number % 20 == 0
        or item.case not in (text_items.TEXTS, text_items.IDS)
        or any(part in item.name for part in SPOILT)
    ]
    monkeypatch.setattr(text, "items", lambda *_arguments, **_options: few)
    return App(tmp_path, text_model, few)


# Comparisons


def test_an_app_that_answers_as_python_does_is_equal(app):
    level = app.check()
    assert (level.number, level.name, level.verdict) == (0, "text", EQUAL)
    assert [case.name for case in level.cases] == list(text_items.CASES)
    assert sum(case.comparisons for case in level.cases) == len(app.items)


def test_every_byte_and_every_special_token_is_asked(items):
    asked = {item.text for item in items if item.case == text_items.TEXTS}
    assert {chr(byte) for byte in range(256)} <= asked
    assert "<|endoftext|>" in asked


def test_other_ids_are_named_with_the_text_around_them(app):
    item = app.spoil(text_items.TEXTS, "the code of LANTERN")
    app.answers[key(item.question)]["ids"] = [*item.answer["ids"][:3], 7, 8]
    app.says(text_items.TEXTS)


def test_the_number_of_texts_that_differ_is_said(app):
    app.spoil(text_items.TEXTS, '"a"', ids=[])
    app.spoil(text_items.TEXTS, '"b"', ids=[])
    first = app.case(text_items.TEXTS).first_difference
    assert first is not None
    assert "; 2 of " in first.detail


def test_text_that_streaming_loses_is_named(app):
    item = app.spoil(text_items.IDS)
    whole = item.answer["text"]
    app.answers[key(item.question)]["streamed_text"] = whole[:-1]
    app.says(text_items.IDS)


def test_another_decoded_text_is_named_with_escapes(app):
    item = app.spoil(text_items.IDS, "the code of LANTERN")
    app.answers[key(item.question)]["plain"] = item.answer["plain"] + "\x1d\n"
    app.says(text_items.IDS)


def test_a_template_that_renders_otherwise_is_named_by_its_conversation(app):
    item = app.spoil(text_items.TEMPLATES, "turns")
    app.answers[key(item.question)]["ids"] = item.answer["ids"][1:]
    app.says(text_items.TEMPLATES)


def test_a_conversation_that_only_one_side_refuses_differs(app):
    item = app.spoil(text_items.TEMPLATES, "turns")
    app.answers[key(item.question)] = {"error": "upper filter requires string"}
    app.says(text_items.TEMPLATES)


def test_a_later_turn_that_lacks_the_end_of_the_reply_is_named(app):
    item = app.spoil(text_items.TURNS, "two turns")
    turn = app.answers[key(item.question)]["turns"][1]
    turn["ids"] = turn["ids"][2:]
    app.says(text_items.TURNS)


class Letters:
    """A tokenizer with a token for each letter, and one for "." with "<"."""

    def decode(self, ids: list[int], *, skip_special_tokens: bool) -> str:
        assert not skip_special_tokens
        return "".join({0: ".<", 1: "<end>"}.get(number, chr(number)) for number in ids)


@pytest.mark.parametrize(
    ("whole", "own", "detail"),
    [
        ("Hi\n\nyou<u>", "<u>", ""),
        ("Hi you<u>", "<u>", ""),  # the template writes white space in another way
        ("Hi you<end><u>", "<u>", ""),  # the model writes the token that ends a reply
        ("other<u>", "<u>", ""),
        ("Hi\n\nyou!<u>", "<u>", 'the app does not read "!" after the reply "Hi\\n\\nyou"'),
        ("Hi\n\nyou<u>", "<v>", "differs"),
    ],
)
def test_a_later_turn_begins_where_the_reply_ended(whole, own, detail):
    ids = [1 if part == "<end>" else ord(part) for part in re.findall("<end>|.|\n", whole)]
    item = Item(text_items.TURNS, "", {}, {"stops": [1], "replies": ["", "Hi\n\nyou"]})
    said = text.end_apart(item, 1, [ord(letter) for letter in own], ids, Letters())
    assert detail in said
    assert bool(detail) == bool(said)


def test_turns_that_both_sides_refuse_are_equal():
    item = Item(text_items.TURNS, "", {}, {"wholes": [{"error": "no system role"}]})
    assert text.compare(item, {"error": "no system role"}, None) == ("refusal", "")
    assert "does not refuse it" in text.compare(item, {"turns": []}, None)[1]


def test_a_token_may_join_the_reply_and_what_follows_it():
    item = Item(text_items.TURNS, "", {}, {"stops": [], "replies": ["", "Hi."]})
    ids = [ord("H"), ord("i"), 0, ord("u"), ord(">")]
    assert text.end_apart(item, 1, [ord(letter) for letter in "<u>"], ids, Letters()) == ""


def test_a_value_of_the_configuration_is_named_with_both_values(app):
    item = app.spoil(text_items.CONFIGURATION)
    values = app.answers[key(item.question)]["values"]["configuration"]
    values["rope_theta"] = 1_000_000.0
    app.says(text_items.CONFIGURATION)


# Programs that end


def test_an_item_that_ends_the_program_is_a_difference_and_the_rest_is_asked(app):
    app.spoil(text_items.TEXTS, '"\\x1d"', signal=signal.SIGILL)
    level = app.check()
    assert sum(case.comparisons for case in level.cases) == len(app.items)
    assert [case.name for case in level.cases if not case.equal] == [text_items.TEXTS]
    app.says(text_items.TEXTS)


def test_an_item_without_an_answer_in_time_is_a_difference(app, monkeypatch):
    monkeypatch.setattr(text_program, "LIMIT", 5.0)
    app.spoil(text_items.TEMPLATES, "turns", sleep=True)
    app.says(text_items.TEMPLATES)


def test_a_program_that_ends_again_and_again_is_not_asked_for_ever(app, monkeypatch):
    monkeypatch.setattr(text_program, "MOST_ENDS", 2)
    for item in app.items:
        if item.case == text_items.TEXTS:
            app.answers[key(item.question)]["signal"] = signal.SIGKILL
    assert app.check().verdict == DIFFERENT


def test_without_a_tokenizer_nothing_else_is_asked(app):
    app.spoil(text_items.LOAD, error="BPETokenizer requires merges")
    level = app.check()
    assert [case.name for case in level.cases] == [text_items.CONFIGURATION, text_items.LOAD]
    app.says(text_items.LOAD)


# The program


SOURCES = {
    "mlx-swift-lm/Libraries/MLXLMCommon/Tokenizer.swift": "import Foundation\n",
    "mlx-swift-lm/Libraries/MLXLMCommon/Load.swift": (
        "import MLX\n\npublic enum WeightFileSelection { case automatic }\n"
    ),
    "h2o-tokenizers/Package.swift": "",
}
MODULE = text_program.Module(
    "MLXLMCommon",
    "Libraries/MLXLMCommon",
    ("*izer.swift",),
    {"Load.swift": ("WeightFileSelection",)},
)
SWIFT = """\
if [ "$1" = --version ]; then echo "Swift ${VERSION:-6}"; exit; fi
while [ "$1" != --package-path ]; do shift; done
cd "$2"
echo built >> "$BUILDS"
grep -rq broken Sources && { echo "Tokenizer.swift:1: error: broken"; exit 1; }
mkdir -p build/release
cat Sources/*/*.swift > build/release/h2o-text
"""


class Builds:
    """Small sources of the program, and a `swift` that counts builds."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sources = build_tree(folder / "sources", SOURCES)
        self.counted = folder / "builds"
        self.cache = Origin(folder / "cache")
        self.swift = str(program(folder / "bin", "swift", SWIFT))
        monkeypatch.setenv("BUILDS", str(self.counted))
        monkeypatch.setattr(text_program, "sources", self.found)
        monkeypatch.setattr(text_program, "decoder_sources", lambda _folder: {})
        monkeypatch.setattr(text_program, "text_modules", lambda: (MODULE,))

    @contextmanager
    def found(self, *_arguments: object) -> Iterator[Path]:
        yield self.sources

    def program(self) -> Path:
        return text_program.program(None, self.cache, self.swift, silent)

    @property
    def count(self) -> int:
        return len(self.counted.read_text().splitlines())

    def write(self, name: str, content: str) -> None:
        (self.sources / "mlx-swift-lm/Libraries/MLXLMCommon" / name).write_text(content)


@pytest.fixture
def builds(tmp_path, monkeypatch) -> Builds:
    return Builds(tmp_path, monkeypatch)


def test_the_program_is_built_once(builds):
    first = builds.program()
    assert "PromptFormat" in first.read_text()
    assert "enum WeightFileSelection" in first.read_text()
    assert builds.program() == first
    assert builds.count == 1


def test_other_sources_and_another_compiler_make_another_program(builds, monkeypatch):
    first = builds.program()
    builds.write("Tokenizer.swift", "import Foundation\n// changed\n")
    second = builds.program()
    monkeypatch.setenv("VERSION", "7")
    assert len({first, second, builds.program()}) == builds.count == 3


def test_a_build_that_fails_is_said_with_the_compilers_words(builds):
    builds.write("Tokenizer.swift", "broken")
    assert "Tokenizer.swift:1: error: broken" in refused(builds.program, code=ExitCode.TOOL)
    builds.write("Tokenizer.swift", "import Foundation\n")
    assert builds.program().is_file()


def test_a_file_that_upstream_no_longer_has_is_named(builds):
    (builds.sources / "mlx-swift-lm/Libraries/MLXLMCommon/Tokenizer.swift").unlink()
    says(refused(builds.program, code=ExitCode.VERSION))


def test_a_file_that_imports_mlx_is_named(builds):
    builds.write("Tokenizer.swift", "import Foundation\nimport MLXNN\n")
    says(refused(builds.program, code=ExitCode.VERSION))


def test_a_declaration_that_upstream_no_longer_has_is_named(builds):
    builds.write("Load.swift", "import MLX\n")
    says(refused(builds.program, code=ExitCode.VERSION))


DECODER = """\
import Foundation

public func decodeConfiguration(_ data: Data) throws -> Data { data }
"""
STANDIN = {
    "H2OTokenizers": "swift_templates/standin/h2o-tokenizers/Sources/H2OTokenizers/*.swift",
    "MLXLMCommon": "swift_templates/standin/mlx-swift-lm/Libraries/MLXLMCommon/[RT]*.swift",
}
CONTEXT = "swift_templates/standin/mlx-swift-lm/Libraries/MLXLMCommon/ModelContext.swift"
PROTOCOLS = ("Tokenizer", "TokenizerError", "TokenizerLoader")


@pytest.mark.swift
def test_the_program_compiles_with_the_stand_ins_tokenizer(tmp_path):
    root = assets.root()
    files = {name: sorted(root.glob(pattern)) for name, pattern in STANDIN.items()}
    [module] = text_program.text_modules()
    added = (root / "swift_templates/upstream/mlx-swift-lm").glob("*.swift")
    files["MLXLMCommon"] += [path for path in added if path.name in module.paths]
    tokenizer = text_program.cut_out(root / CONTEXT, PROTOCOLS)
    made = {"Tokenizer.swift": tokenizer, "Decoder.swift": DECODER}
    build_tree(tmp_path, made)
    files["MLXLMCommon"].append(tmp_path / "Tokenizer.swift")
    files["H2OConfigurations"] = [tmp_path / "Decoder.swift"]
    own = text_program.own_files()
    for other in (text_program.MANIFEST, text_program.STUBS):
        del own[other]
    loader = text_program.loader_source()
    build_tree(tmp_path, {"Loader.swift": loader})
    options = (
        "-swift-version",
        "6",
        "-package-name",
        "h2o",
        "-parse-as-library",
        "-I",
        tmp_path,
    )
    for name, sources in files.items():
        module = ("-emit-module", "-module-name", name, "-o", tmp_path / f"{name}.swiftmodule")
        compiled(*module, *options, *sources)
    compiled(
        "-typecheck",
        "-module-name",
        "h2o_text",
        *options,
        *own.values(),
        tmp_path / "Loader.swift",
    )


def compiled(*arguments: object) -> None:
    command = ["swiftc", *map(str, arguments)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr


# The commands


def without_swift(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))


def test_without_swift_the_level_is_not_run(tiny_package, run, monkeypatch, tmp_path):
    without_swift(monkeypatch, tmp_path)
    result = run("parity", tiny_package, "--level", "text", "--json")
    assert result.exit_code == ExitCode.OK, result.output
    [level] = json.loads(result.stdout)["levels"]
    says(level["not_run"])
    required = run("parity", tiny_package, "--level", "text", "--require-swift")
    assert required.exit_code == ExitCode.TOOL


def test_a_package_says_that_its_text_was_not_checked_without_swift(ios, monkeypatch, tmp_path):
    without_swift(monkeypatch, tmp_path)
    result = ios("--no-vendor", "--check-text", "--json")
    [level] = json.loads(result.stdout)["text"]
    says(level["not_run"])


def test_a_package_says_that_its_text_was_not_checked_without_sources(
    ios, monkeypatch, tmp_path
):
    monkeypatch.setattr(swift, "find_swift", lambda: "swift")
    monkeypatch.setenv("H2O_PACK_CACHE", str(tmp_path / "cache"))
    result = ios("--no-vendor", "--check-text", "--json")
    [level] = json.loads(result.stdout)["text"]
    says(level["not_run"])


@pytest.mark.parametrize("differs", [False, True])
def test_a_package_is_checked_where_swift_and_the_sources_are(ios, monkeypatch, *, differs):
    result = CaseResult(
        name="texts", dtype="text", layers=0, steps=3, comparisons=3, tolerance=0.0
    )
    if differs:
        difference = Difference(None, 0, "ids", "id 0 differs", 'the text "a"')
        result = replace(result, first_difference=difference)
    level = Level(0, "text", "libraries", (result,))
    monkeypatch.setattr(swift, "find_swift", lambda: "swift")
    monkeypatch.setattr(text_program, "missing", lambda *_arguments: ())
    monkeypatch.setattr(text_program, "program", lambda *_arguments: Path("h2o-text"))
    monkeypatch.setattr(text, "check_text", lambda *_arguments: level)
    code = ExitCode.DIFFERENT if differs else ExitCode.OK
    made = ios("--no-vendor", "--check-text", code=code)
    line = next(line for line in made.stdout.splitlines() if line.startswith("text"))
    says(line)
    assert (made.stdout.count("next:\n")) == 1


def test_a_message_of_a_question_has_every_field_that_the_app_requires():
    source = (assets.root() / "swift_templates/H2OSessions/Text/H2OMessage.swift").read_text()
    stored = source.partition("struct H2OMessage")[2].partition("public init(")[0]
    required = set(re.findall(r"public var (\w+): [^?\n]+$", stored, re.MULTILINE))
    assert {"role", "text", "isCutOff"} <= required
    assert required <= text_items.swift({"role": "user", "text": "a"}).keys()
