"""What people see of a long command, in a terminal and elsewhere."""

import subprocess
import sys
from contextlib import contextmanager

import click
import pytest

from h2o_pack.cli.frame import Commands
from h2o_pack.cli.terminal import Terminal
from h2o_pack.errors import ExitCode
from tests.nightly import nightly_except
from tests.pseudo_terminal import in_terminal

H2O_PACK = (sys.executable, "-m", "h2o_pack")
# A command with steps, a bar, output of a library and a result, which waits for its input.
WORKS = """
import sys, click
from h2o_pack.cli.frame import Commands, command

@command(example="")
def work(*, out):
    with out.progress() as say:
        say("reading \\x1b]0;PWN\\x07" + "a long name " * 20)
        sys.stdin.readline()
        print("of a library", file=sys.stderr)
        out.tell(lambda console: console.print("[green]within[/green]"))
        with say.bar("copying", 4_000_000) as advance:
            advance(1_000_000)
            print("half a line", end=" ")
            advance(1_000_000)
            print("and its end")
            sys.stdin.readline()
            if "fail" in sys.argv:
                raise ValueError("it broke")
            advance(2_000_000)
        say("copied", done=True)
    out.show({}, lambda console: console.print("[bold]the result[/bold]"))

Commands.get_command = lambda *names: work
Commands({"": {"work": "none"}}).main(["work"])
"""


@contextmanager
def at_work(*words, **options):
    """The command at its first step; `go(session)` lets it go on."""
    with in_terminal(
        sys.executable, "-c", WORKS, *words, stdin=subprocess.PIPE, **options
    ) as session:
        session.wait_for("reading")
        yield session


def go(session):
    session.process.stdin.write(b"\n")
    session.process.stdin.flush()


@pytest.mark.parametrize(("columns", "setting"), [(80, {}), (120, {"NO_COLOR": "1"}), (24, {})])
def test_a_step_is_one_line_that_vanishes(columns, setting):
    with at_work(columns=columns, env=setting) as session:
        assert [len(line) < columns for line in session.screen.lines] == [True]
        go(session)
        session.wait_for("copying: 50 %")
        go(session)
        assert session.ended() == ExitCode.OK
    assert session.screen.lines == [
        "of a library",
        "within",
        "half a line and its end",
        "copied",
        "the result",
        "",
    ]
    assert session.raw.count("\ufffd") == 2 * session.raw.count("\ufffd]0;PWN\ufffd")
    assert not session.screen.is_cursor_hidden
    assert ("\x1b[32m" in session.raw) != bool(setting)


def test_a_terminal_that_changes_its_size_gets_lines_of_its_new_size():
    with at_work(columns=120) as session:
        session.resize(40)
        before = len(session.raw)
        session.wait_for("  2 s")
        drawn = session.raw[before:].split("\r")[1:]
        assert all(len(line.removesuffix("\x1b[K")) < 40 for line in drawn)
        go(session)
        go(session)
        assert session.ended() == ExitCode.OK
    assert session.screen.lines[-2] == "the result"


def test_ctrl_c_and_an_error_leave_no_line_behind():
    with at_work() as session:
        session.type("\x03")
        assert session.ended() == ExitCode.INTERRUPTED
    assert session.screen.text == "interrupted"
    with at_work("fail") as session:
        go(session)
        go(session)
        assert session.ended() == ExitCode.INTERNAL
    assert session.screen.lines[3].startswith("error: ValueError: it broke")
    assert not session.screen.is_cursor_hidden


@pytest.mark.parametrize(("command", "continues"), [("ios", True), ("bench", False)])
def test_only_what_continues_is_said_to(command, continues, capsys, monkeypatch):
    def stop():
        raise KeyboardInterrupt

    monkeypatch.setattr(
        Commands, "get_command", lambda *_names: click.Command(command, callback=stop)
    )
    with pytest.raises(SystemExit) as ended:
        Commands({"": {command: "none"}}).main([command])
    assert ended.value.code == ExitCode.INTERRUPTED
    more = "; run the command again to finish" if continues else ""
    assert capsys.readouterr().err == f"interrupted{more}\n"


def test_a_dumb_terminal_gets_whole_lines_only():
    with in_terminal(
        sys.executable, "-c", WORKS, stdin=subprocess.PIPE, env={"TERM": "dumb"}
    ) as session:
        go(session)
        go(session)
        assert session.ended() == ExitCode.OK
    assert "\x1b" not in session.raw
    assert "copying: 25 %, 1.0 of 4.0 MB" in session.screen.lines
    assert "copied" in session.screen.lines


def test_the_result_is_in_the_pipe_and_the_step_in_the_terminal(tmp_path):
    result = tmp_path / "result"
    with result.open("wb") as file, at_work(stdout=file) as session:
        go(session)
        go(session)
        assert session.ended() == ExitCode.OK
    assert result.read_text("utf-8") == "within\nhalf a line and its end\nthe result\n"
    assert session.screen.lines == ["of a library", "copied", ""]


def test_steps_and_quarters_are_lines_where_a_log_was_asked_for(capsys):
    with Terminal().progress(log=True) as say, say.bar("reading", 8, "items") as advance:
        say("a step that begins")
        for _ in range(8):
            advance(1)
        say("read", done=True)
    assert capsys.readouterr().err.splitlines() == [
        "reading",
        "reading: 25 %, 2 of 8",
        "reading: 50 %, 4 of 8",
        "reading: 75 %, 6 of 8",
        "read",
    ]


def arguments(folder, *, every):
    """The commands that show progress, in an order in which each finds what it needs."""
    package = folder / "Demo"
    model, device = ("--model", "demo"), ("--device", "iPhone 15")
    if every:
        yield "ios", *model, "--max-kv", "64", "--output", folder / "Other", "--no-vendor"
    yield "verify", package
    yield "plan", *model, *device
    if every:
        yield "plan", *device
        yield "update", package
        yield "parity", package, "--level", "op"
        yield "vendor", package, "--upstream", folder
        less = ("--samples", "1", "--seeds", "1", "--lengths", "128", "--max-kv", "32")
        yield "eval", *model, "--preset", "text", *less, "--contenders", "full"
        yield "profile", *model, "--tokens", "64", "--samples", "1"
        yield "bench", *model, "--max-kv", "128", "--tokens", "16", "--quick"
        yield ("doctor",)


@pytest.mark.parametrize(
    ("columns", "every"), nightly_except([(80, False)], [(80, False), (120, True)])
)
def test_no_command_leaves_anything_of_its_steps(columns, every, ios, run, tmp_path):
    ios()
    settings = {
        "H2O_PACK_CHECK_TEXT": "0",
        "H2O_PACK_CACHE": str(tmp_path / "cache"),
        "HF_HUB_OFFLINE": "1",
        "H2O_PACK_MIRROR": "http://127.0.0.1:9",
    }
    for words in arguments(tmp_path, every=every):
        with in_terminal(*H2O_PACK, *words, columns=columns, env=settings) as session:
            code = session.ended()
        refused = {"vendor": ExitCode.USAGE, "doctor": code}
        assert code == refused.get(words[0], ExitCode.OK), session.screen.text
        assert "\ufffd" not in session.raw
        assert not session.screen.is_cursor_hidden
        assert session.screen.lines[-1] == "", words
        if words[0] in ("plan", "verify") and columns == 80:  # as wide as a pipe
            lines = [line.rstrip() for line in run(*words).stdout.splitlines()]
            assert session.screen.text == "\n".join(lines), words
