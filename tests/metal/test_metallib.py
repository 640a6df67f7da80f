"""Building the library with a stand-in for xcrun, which writes down what it is asked."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from h2o_pack.errors import ExitCode, UserError
from h2o_pack.kernels import metallib, sources
from tests.metal.checking import ROOT

MISSING = (
    "error: error: cannot execute tool 'metal' due to missing Metal Toolchain; "
    "use: xcodebuild -downloadComponent MetalToolchain"
)
XCRUN = """#!{python}
import json, os, pathlib, sys
folder = pathlib.Path(__file__).parent
with (folder / "asked").open("a") as asked:
    asked.write(json.dumps(sys.argv[1:]) + "\\n")
if (folder / "fails").exists():
    sys.stderr.write((folder / "fails").read_text())
    sys.exit(1)
arguments = sys.argv[1:]
if "-c" in arguments:
    include = next(a[2:] for a in arguments if a.startswith("-I"))
    header = pathlib.Path(include, "mlx/backend/metal/kernels/sdpa_vector.h")
    assert "output_scores" in header.read_text()
pathlib.Path(arguments[arguments.index("-o") + 1]).write_text("made for " + arguments[1])
"""


@pytest.fixture
def xcrun(tmp_path, monkeypatch):
    """The folder of the stand-in: `asked` has its calls, a file `fails` makes it fail."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "xcrun").write_text(XCRUN.format(python=sys.executable))
    (folder / "xcrun").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(metallib.sys, "platform", "darwin")
    return folder


def asked(folder: Path) -> list[list[str]]:
    return [json.loads(line) for line in (folder / "asked").read_text().splitlines()]


@pytest.mark.parametrize(
    ("sdk", "min_os", "target"),
    [
        ("macosx", None, "air64-apple-macos14.0"),
        ("iphoneos", None, "air64-apple-ios17.0"),
        ("iphoneos", "18.1", "air64-apple-ios18.1"),
        ("iphonesimulator", None, "air64-apple-ios17.0-simulator"),
    ],
)
def test_the_command_is_that_of_the_sdk(sdk, min_os, target):
    command = metallib.compile_command(
        metallib.find_sdk(sdk), Path("a.metal"), Path("include"), Path("a.air"), min_os
    )
    assert command[:6] == ["xcrun", "-sdk", sdk, "metal", "-target", target]
    assert {"-fno-fast-math", "-Wall", "-Wextra", "-std=metal3.1"} <= set(command)
    assert command[-5:] == ["-Iinclude", "-c", "a.metal", "-o", "a.air"]


def test_all_kernels_are_compiled_over_patched_headers_and_linked(xcrun, tmp_path):
    built = metallib.build_all(tmp_path / "out")
    assert list(built) == list(metallib.SDKS)
    calls = asked(xcrun)
    for sdk, library in built.items():
        mine = [call for call in calls if call[1] == sdk]
        compiled = [Path(call[call.index("-c") + 1]).name for call in mine if "-c" in call]
        assert compiled == sorted(p.name for p in (ROOT / "metal/kernels").glob("*.metal"))
        assert [Path(air).stem for air in mine[-1][3:-2]] == [n[:-6] for n in compiled]
        assert mine[-1][2] == "metallib"
        assert library == tmp_path / f"out/{sdk}/h2o.metallib"
        assert library.read_text() == f"made for {sdk}"
        assert [each.name for each in library.parent.iterdir()] == ["h2o.metallib"]


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        (MISSING, "Run: xcodebuild -downloadComponent MetalToolchain"),
        ('xcrun: error: unable to find utility "metal"', "sudo xcode-select -s"),
        ('xcrun: error: SDK "iphoneos" cannot be located', "Components"),
        ("h2o.metal:3:1: error: unknown type name 'devise'", "Correct that"),
    ],
)
def test_a_failure_says_what_to_do_and_leaves_the_library_as_it_was(
    xcrun, tmp_path, said, remedy
):
    (tmp_path / "h2o.metallib").write_text("before")
    (xcrun / "fails").write_text(f"note: something\n{said}\n1 error generated.\n")
    with pytest.raises(UserError) as caught:
        metallib.build(tmp_path / "h2o.metallib")
    assert caught.value.code == ExitCode.TOOL
    assert said in caught.value.what
    assert "something" not in caught.value.what
    assert remedy in caught.value.remedy
    assert (tmp_path / "h2o.metallib").read_text() == "before"
    assert not list(tmp_path.glob(".h2o-*"))


def test_without_xcrun_it_says_what_to_install(xcrun, tmp_path):
    (xcrun / "xcrun").unlink()
    with pytest.raises(UserError, match=r"xcrun is missing .*Install Xcode"):
        metallib.build(tmp_path / "h2o.metallib")


def test_another_system_is_told_what_it_can_do(tmp_path):
    with pytest.raises(UserError, match=r"on macOS only .*linux.*kernels check") as caught:
        metallib.build(tmp_path / "h2o.metallib", platform="linux")
    assert caught.value.code == ExitCode.TOOL
    assert not (tmp_path / "h2o.metallib").exists()


def test_an_unknown_sdk_and_a_min_os_of_several_are_refused(tmp_path):
    with pytest.raises(UserError, match='Did you mean "iphoneos"'):
        metallib.build_all(tmp_path, ["iphoneo"])
    with pytest.raises(UserError, match="one --sdk"):
        metallib.build_all(tmp_path, [], "18.0")


def test_the_module_builds_before_anything_of_it_is_compiled(xcrun, tmp_path):
    """As cexport/CMakeLists.txt runs it while h2o-pack is being installed."""
    code = (
        f"import sys; sys.path[:0] = [{str(ROOT / 'bridge')!r}, {str(tmp_path)!r}]\n"
        "sys.platform = 'darwin'\n"
        "from h2o_pack.kernels.metallib import main\n"
        f"sys.exit(main(['--output', {str(tmp_path / 'lib/h2o.metallib')!r},"
        f" '--include', {str(sources.upstream_headers())!r}]))\n"
    )
    shutil.copytree(ROOT / "h2o_py", tmp_path / "h2o_py", ignore=shutil.ignore_patterns("*.so"))
    command = [sys.executable, "-I", "-c", code]
    done = subprocess.run(command, env=os.environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "lib/h2o.metallib").read_text() == "made for macosx"


def test_the_module_ends_with_the_errors_exit_code(xcrun, tmp_path, capsys):
    (xcrun / "fails").write_text(MISSING)
    assert metallib.main(["--output", str(tmp_path / "l")]) == ExitCode.TOOL
    assert re.match("error: compiling .* failed", capsys.readouterr().err)
