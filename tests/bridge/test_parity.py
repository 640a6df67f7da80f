"""The whole way: a package of the bundled demo model, its parity, and broken copies of it."""

import json
import math
import os
import re
import shutil
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from h2o_pack import assets
from h2o_pack.cli import main
from h2o_pack.errors import ExitCode
from h2o_pack.naming import swift_string
from h2o_pack.parity import op, trace
from h2o_pack.parity.parity_report import CaseResult
from h2o_pack.parity.swift import SYSTEM, prepare, standin_files, sync
from h2o_py.storages import STORAGE_BITS
from tests.attacks import app
from tests.bridge.faults import CHOICE, FAULTS, with_faults
from tests.bridge.golden import FETCHED, package_files
from tests.bridge.test_interchange import swift_tests
from tests.bridge.trees import program
from tests.cexport.test_c_api import refuse_empty_handles
from tests.conversations.program import KILLED, build, kill
from tests.messages import says
from tests.nightly import nightly_except
from tests.processes import output_of

STORED = [f"kv {name}" for name in STORAGE_BITS if name != "16"]
FIRST = ["float32", "published policy", "not routed", *STORED]
CASES = [*FIRST, *trace.RECALL, "float16", "bfloat16"]
# A fault of the C++ and one of the Swift.
EVERYDAY = ("score not averaged over the group", "attention without its mask")


def parity(package: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["parity", str(package), *arguments])


@pytest.fixture
def package(demo_package) -> Path:
    return demo_package


@pytest.fixture(autouse=True, scope="module")
def recorded_once() -> Iterator[None]:
    """Record and compare the package's runs once: no test here changes the Python half.

    Fewer tokens are decoded than a user's parity decodes.
    """
    compare = op.compare
    once = cache(lambda *arguments: tuple(original(*arguments)))

    def record(*arguments: object) -> tuple[trace.Trace, ...]:
        return tuple(recording.written() for recording in once(*arguments))

    original = trace.record
    compared: dict[tuple[Path, str], CaseResult] = {}

    def compare_once(recording: trace.Trace, case: trace.Case) -> CaseResult:
        key = recording.folder, case.name
        if key not in compared:
            compared[key] = compare(recording, case)
        return compared[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trace, "DECODED", 15)
        patch.setattr(trace, "record", record)
        patch.setattr(op, "compare", compare_once)
        yield


class TestWithoutSwift:
    @pytest.fixture(autouse=True)
    def no_swift(self, tmp_path, monkeypatch):
        monkeypatch.setenv("PATH", str(tmp_path))

    @pytest.mark.filterwarnings("error::h2o_py.errors.H2OConfigWarning")
    def test_what_could_not_be_verified_is_said_in_its_row(self, package):
        result = parity(package)
        assert result.exit_code == ExitCode.OK, result.output
        row = next(line for line in result.stdout.splitlines() if "2 trace" in line)
        assert row.rstrip().endswith("not run")

    def test_a_run_that_must_have_swift_ends_with_5(self, package):
        result = parity(package, "--require-swift")
        assert result.exit_code == ExitCode.TOOL
        says(result.stderr)

    def test_a_vendored_package_says_that_its_model_was_not_run(self, package, tmp_path):
        copy = tmp_path / "Vendored"
        shutil.copytree(package, copy, ignore=shutil.ignore_patterns(".parity"))
        (copy / "Vendor").mkdir()
        result = parity(copy, "--level", "tokens", "--json")
        assert result.exit_code == ExitCode.OK, result.output
        [level] = json.loads(result.stdout)["levels"]
        assert (level["number"], level["verdict"]) == (3, "not run")
        says(level["not_run"])
        required = parity(copy, "--level", "tokens", "--require-swift")
        assert required.exit_code == ExitCode.TOOL

    def test_level_3_without_anything_says_all_that_it_needs(self, package):
        for level in ("tokens", "all"):
            result = parity(package, "--level", level)
            assert result.exit_code == ExitCode.TOOL
            says(result.stderr.replace(f"--host {SYSTEM}", "--host SYSTEM"))

    def test_the_core_is_compared_with_the_reference(self, package):
        document = json.loads(parity(package, "--level", "op", "--json").stdout)
        assert [level["name"] for level in document["levels"]] == ["op"]
        assert document["levels"][0]["verdict"] == "equal"
        assert [case["name"] for case in document["levels"][0]["cases"]] == CASES
        for case in document["levels"][0]["cases"]:
            kinds = 1 if case["name"] == "not routed" else 3
            assert case["comparisons"] == case["layers"] * case["steps"] * kinds


class TestWithSwift:
    pytestmark = pytest.mark.swift

    def test_python_and_swift_agree(self, package):
        result = parity(package, "--json")
        assert result.exit_code == ExitCode.OK, result.output
        document = json.loads(result.stdout)
        assert document["host"] == "the CPU stand-in for mlx-swift 0.31.6"
        assert document["tokens"] >= 2 * 64
        assert [level["verdict"] for level in document["levels"]] == ["equal", "equal"]
        for level in document["levels"]:
            assert [case["name"] for case in level["cases"]] == CASES
            for case in level["cases"]:
                assert case["comparisons"] >= case["layers"] * case["steps"]

    @pytest.mark.nightly("test_a_build_that_fails_ends_parity_with_the_compilers_words")
    def test_sources_that_do_not_compile_end_with_the_compilers_words(self, package):
        path = package / "Tests/H2OKitTests/GuardTests.swift"  # nothing needs it
        original = path.read_text("utf-8")
        path.write_text(original + "let x: Int = nothing\n", encoding="utf-8")
        try:
            result = parity(package, "--level", "trace")
        finally:
            path.write_text(original, encoding="utf-8")
        assert result.exit_code == ExitCode.TOOL
        assert "error: swift build failed:" in result.stderr
        assert "cannot find 'nothing' in scope" in result.stderr
        assert f"(the whole output is in {package}/.parity/swift.log)" in result.stderr

    def test_the_packages_own_tests_pass(self, package):
        host = prepare(package)
        work = package / ".parity"
        # SwiftPM warns of a home that it cannot write to.
        own = ("--config-path", work / "config", "--security-path", work / "security")
        output = swift_tests(host, *own, H2O_MODEL_DIR=str(package / "Model"))
        # Parity runs the replay, test_interchange.py that of files, the next tests attacks and
        # the killed conversation. The stand-in has no models and no engine for grammars, so
        # level 3, a session with the bundled model, and the engine run on upstream only.
        assert sorted(re.findall(r"'(\S+)' skipped \(", output)) == [
            "AttackTests.testEachIsRefusedOrUsed",
            "BundledModelTests.testItRepliesWithinItsBudget",
            "BundledModelTests.testTheFirstTurnBeginsAfterTheSystemPrompt",
            "BundledModelTests.testThePreparedCachesHaveReadTheSystemPrompt",
            "InterchangeTests.testCachesOfPythonGoOnHere",
            "KilledConversationTests.testItGoesOnFromItsLastWholeTurn",
            "ParityReplayTests.testTheCacheDoesWhatPythonsDid",
            "ParityTokensTests.testSessionsHaveTheConversationOfTheRequest",
            "SchemaProcessorTests.testTheEngineEndsRepliesInTime",
        ]
        assert "warning:" not in output

    def test_every_function_in_c_refuses_a_handle_that_is_empty(self, package, tmp_path):
        host = build(package, {}).host
        objects = list((host.scratch / "debug/Cmlx.build").rglob("*.o"))
        refuse_empty_handles(host.root / "Vendor/mlx-swift/Source/Cmlx", objects, tmp_path)

    @pytest.mark.parametrize("count", nightly_except([2], [2, 6]))
    def test_a_killed_conversation_resumes_from_its_last_whole_turn(
        self, package, tmp_path, count
    ):
        kills = kill(build(package, {}), count, 17, tmp_path)

        assert [kill for kill in kills.kills if not kill.resumed_whole] == []
        assert kills.same

    def test_changed_schemas_and_saved_conversations_end_no_process(self, package):
        attacks = app.attacks(build(package, {}), range(app.BATCH), math.inf)
        assert [attack for attack in attacks if attack[1]] == []

    def test_a_changed_conversation_with_its_digest_made_right_gets_past_the_digest(
        self, package, tmp_path
    ):
        """Or the attacks would try nothing but the digest."""
        conversation = build(package, {"H2O_CONVERSATION_TURNS": "2"})
        conversation.run(KILLED, tmp_path / "first")
        saved = tmp_path / "first/saved/conversation.safetensors"
        data = saved.read_bytes()
        assert app.sealed(data) == data
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + length])
        state = json.loads(header["__metadata__"]["0.state"])
        for name, changes in (("0", {"ended": False}), ("1", {"pinned": [-3, 2]})):
            header["__metadata__"]["0.state"] = json.dumps({**state, **changes})
            changed = app.with_header(
                json.dumps(header, separators=(",", ":")), data[8 + length :]
            )
            for number, content in ((name, app.sealed(changed)), (f"{name}0", changed)):
                folder = tmp_path / "attacks" / number
                folder.mkdir(parents=True)
                (folder / saved.name).write_bytes(content)
        names, refusals, what = app.answers(conversation, tmp_path / "attacks")
        assert (names, what) == (["0", "00", "1", "10"], "")
        reasons = ["digest" if "cut short or changed" in text else "state" for text in refusals]
        assert reasons == ["digest", "state", "digest"]

    def test_swift_reads_the_strings_that_the_generator_writes(self, tmp_path):
        texts = [
            "plain",
            'a"b\\(c)\\u{41}\n\t\r\0',
            "\N{PARTY POPPER} caf\u00e9 \u202e",
            '#"""#',
        ]
        literals = ", ".join(swift_string(text) for text in texts)
        source = tmp_path / "main.swift"
        source.write_text(f"for s in [{literals}] {{ print(Array(s.utf8)) }}\n")
        output_of("swiftc", source, "-o", tmp_path / "program")
        lines = output_of(tmp_path / "program").splitlines()
        assert lines == [str(list(text.encode())) for text in texts]


class TestOtherPackages:
    """Packages that differ from the first, in one build: two models, a download."""

    pytestmark = pytest.mark.swift

    @pytest.mark.nightly("test_golden.py, download/, and what runs with the first package")
    def test_they_pass_their_tests(self, package, tmp_path):
        two = tmp_path / "Demo"
        models = ("--model", "demo-4bit", "--model", "demo", "--max-kv", "64")
        output = ("--output", str(two), "--name", "Demo", "--no-vendor")
        command = CliRunner().invoke(main, ["ios", *models, *output])
        assert command.exit_code == 0, command.output
        parts = ("Sources/H2OKit/Download/", "Tests/H2OKitTests/Download")
        fetching = {
            path: text
            for path, text in package_files(FETCHED).items()
            if path.startswith(parts) and isinstance(text, str)
        }
        suites = {"BundledModelTests", "DownloadStoreTests", "PieceQueueTests"}
        host = prepare(package)
        try:
            sync(with_faults(standin_files(two)) | fetching, host.root)
            chosen = ("--filter", "|".join(sorted(suites)))
            output = swift_tests(host, *chosen, H2O_MODEL_DIR=str(two / "Model"))
            assert "warning:" not in output
        finally:
            prepare(package)
        assert suites <= set(re.findall(r"Test Suite '(\w+)' passed", output))
        assert sorted(re.findall(r"'(\S+)' skipped \(", output)) == [
            "BundledModelTests.testEachRepliesWithinItsBudget",
            "BundledModelTests.testThePreparedCachesOfEachHaveReadTheSystemPrompt",
        ]


class TestFaults:
    pytestmark = pytest.mark.swift

    @pytest.mark.parametrize("fault", nightly_except(EVERYDAY, FAULTS))
    def test_a_fault_is_found_and_its_layer_and_step_are_named(
        self, package, fault, monkeypatch
    ):
        """Replay the case that shows the fault, and no other."""
        record = trace.record

        def chosen(*arguments: object) -> list[trace.Trace]:
            [recording] = record(*arguments)
            [case] = [case for case in recording.cases if case.name == FAULTS[fault][0]]
            return [replace(recording, cases=(case,)).written()]

        monkeypatch.setattr(trace, "record", chosen)
        monkeypatch.setenv(CHOICE, fault)
        result = parity(package, "--level", "trace")
        assert result.exit_code == ExitCode.DIFFERENT, result.output
        assert "differs" in result.stdout
        assert ": first difference at layer 0, step " in result.stdout


def test_a_build_that_fails_ends_parity_with_the_compilers_words(
    package, tmp_path, monkeypatch
):
    copy = tmp_path / "Demo"
    shutil.copytree(package, copy, ignore=shutil.ignore_patterns(".parity"))
    program(tmp_path / "bin", "swift", "echo 'a.swift: error: no such thing'; exit 1")
    program(tmp_path / "bin", "c++", "")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    result = parity(copy, "--level", "op", "--level", "trace")
    assert result.exit_code == ExitCode.TOOL
    assert "a.swift: error: no such thing" in result.stderr


@pytest.mark.nightly("`make wheel`, which ci.yml runs for each change")
def test_a_wheel_makes_the_same_package_without_the_checkout(package, tmp_path):
    """Build the wheel, unpack it elsewhere and run it without the checkout."""
    build = [
        sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
        "--disable-pip-version-check", "--wheel-dir", str(tmp_path), str(assets.root()),
    ]  # fmt: skip
    programs = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    output_of(*build, env=programs)
    [wheel] = tmp_path.glob("*.whl")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    output = tmp_path / "Demo"
    paths = [str(site), sysconfig.get_path("purelib")]
    code = (
        f"import sys; sys.path += {paths!r}\n"
        "from h2o_pack import assets, cli\n"
        "from h2o_py import fast\n"
        f"assert str(assets.root()) == {str(site / 'h2o_pack/_assets')!r}\n"
        f"assert fast.__file__.startswith({str(site)!r})\n"
        f"cli.main(['ios', '--model', 'demo', '--max-kv', '64', '--output', {str(output)!r}])\n"
    )
    output_of(sys.executable, "-I", "-S", "-c", code, cwd=tmp_path)
    files = {path.relative_to(output) for path in output.rglob("*") if path.is_file()}
    assert Path("Package.swift") in files
    for path in files:
        assert (output / path).read_bytes() == (package / path).read_bytes(), path
