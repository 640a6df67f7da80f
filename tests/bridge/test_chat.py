"""The command `chat`: through a pipe, as JSON, and in a pseudo-terminal."""

import json
import re
import shutil
import stat
import subprocess
import sys

import pytest
from click.testing import CliRunner

from h2o_pack.cli import main
from h2o_pack.errors import ExitCode
from tests.bridge import schemas
from tests.conftest import DEMO
from tests.messages import says
from tests.pseudo_terminal import in_terminal

CHAT = ("chat", "--model", "demo", "--seed", "1", "--max-tokens", "12")


def talk(*options, says="", code=ExitCode.OK):
    """Run the command with an input; its exit code is checked."""
    result = CliRunner().invoke(main, [*CHAT, *map(str, options)], input=says)
    assert result.exit_code == code, result.output
    return result


def events(result):
    """The events that the command printed, each as its schema says."""
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    return [schemas.check(line, "chat") for line in lines]


def test_a_pipe_is_one_message_and_gets_only_the_replys_text():
    result = talk(says="Hello\nthere\n")
    *texts, usage = events(talk("--json", says="Hello\nthere"))
    assert (usage["event"], usage["cached_tokens"]) == ("usage", 0)
    assert result.stdout == "".join(event["text"] for event in texts) + "\n"
    assert result.stderr == ""


def test_each_line_is_a_message_or_a_command_if_asked_for(tmp_path):
    file = tmp_path / "talk"
    saved = talk("--lines", "--json", says=f"Hello\n\n/save {file}\nAnd\n/quit\nno\n")
    kinds = [event["event"] for event in events(saved)]
    assert (kinds.count("usage"), kinds.count("note")) == (2, 1)
    usages = [event for event in events(saved) if event["event"] == "usage"]
    assert usages[1]["cached_tokens"] == usages[0]["tokens"]
    loaded = talk("--lines", "--json", says=f"/load {file}\nAnd\n")
    ended = [event["event"] for event in events(saved)].index("note")
    assert [e.get("text") for e in events(loaded)[1:]] == [
        e.get("text") for e in events(saved)[ended + 1 :]
    ]


def test_commands_reset_the_conversation_and_take_a_system_prompt():
    lines = "Hello\n/reset\nHello\n/system Be kind.\nHello\n/help\n"
    usages = [e for e in events(talk("--lines", "--json", says=lines)) if "tokens" in e]
    assert [usage["cached_tokens"] for usage in usages] == [0, 0, 0]
    assert usages[0]["read_tokens"] == usages[1]["read_tokens"] < usages[2]["read_tokens"]


@pytest.mark.parametrize(
    ("options", "input_text", "code"),
    [
        (["--lines"], "/sav x\n", ExitCode.USAGE),
        (["--lines"], "/save\n", ExitCode.USAGE),
        (["--lines"], "/think\n", ExitCode.USAGE),
        (["--thinking"], "x", ExitCode.USAGE),
        ([], "\n", ExitCode.USAGE),
        (["--kv", "mixed"], "x", ExitCode.USAGE),
        (["--max-kv", "3"], "x", ExitCode.USAGE),
        (["--model", "dem"], "x", ExitCode.MODEL),
        (["--device", "iPhone 99"], "x", ExitCode.USAGE),
    ],
)
def test_a_refused_call_is_one_error_with_its_code(options, input_text, code):
    result = talk(*options, says=input_text, code=code)
    says(result.stderr)
    [error] = events(talk(*options, "--json", says=input_text, code=code))
    assert error["event"] == "error"
    assert error["errors"][0]["code"] == code


def test_input_that_is_no_text_is_refused():
    result = CliRunner().invoke(main, [*CHAT], input=b"\xff\xfe")
    assert result.exit_code == ExitCode.USAGE
    says(result.stderr)


def test_what_ios_refuses_is_refused_alike(ios, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(DEMO, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_file": "m.py"}))
    refused = ios(model=folder, code=ExitCode.MODEL).stderr
    assert talk("--model", folder, says="x", code=ExitCode.MODEL).stderr == refused


def test_with_a_device_the_cache_is_chosen_as_for_a_package():
    result = talk("--device", "iPhone 15", "--json", says="Hello")
    assert events(result)[-1]["event"] == "usage"


def shown(pieces, columns=40, env=None):
    """The screen after parts of a reply."""
    code = (
        "import json, sys; from h2o_pack.cli import reply_view;"
        "from h2o_pack.cli.terminal import Terminal, plain_output;"
        "from h2o_pack.chat.events import *;"
        "reply_view.REDRAWN = 0; view = reply_view.MarkdownView(Terminal(quiet=True));"
        "kinds = {'text': TextEvent, 'thought': ThoughtEvent};"
        "output = plain_output(); output.__enter__();"
        "[view.show(kinds[k](text=t)) for k, t in json.loads(sys.argv[1])];"
        "view.show(NoteEvent(text=''))"
    )
    with in_terminal(
        sys.executable, "-c", code, json.dumps(pieces), columns=columns, env=env
    ) as session:
        assert session.ended() == 0
    return session


MARKDOWN = (
    "# A title\n\nSome **bold** text that goes on and on over the end of a line.\n\n"
    "- one\n- two `x`\n\n```python\nprint(1)\n\nx = 2\n```\n\n[a link](http://a.b) \x1b]0;PWN."
)
SHOWN = [
    "A title",
    "",
    "Some bold text that goes on and on over",
    "the end of a line.",
    "",
    " • one",
    " • two x",
    "",
    "    print(1)",
    "",
    "    x = 2",
    "",
    "a link (http://a.b) \ufffd]0;PWN.",
]


@pytest.mark.parametrize("size", [1, 9, 1000])
def test_markdown_is_shown_the_same_in_any_pieces(size):
    pieces = [["text", MARKDOWN[i : i + size]] for i in range(0, len(MARKDOWN), size)]
    session = shown(pieces)
    assert [line for line in session.screen.lines if line] == [line for line in SHOWN if line]
    assert "\x1b[1m" in session.raw  # bold
    assert "\x1b]" not in session.raw
    assert not session.screen.is_cursor_hidden


def test_thoughts_are_dim_and_above_the_answer():
    session = shown([["thought", "Let me *see*.\nYes"], ["thought", " so."], ["text", "*Ok*"]])
    assert session.screen.lines[:5] == ["Let me *see*.", "Yes so.", "", "Ok", ""]
    assert "\x1b[2mLet me *see*.\x1b[0m" in session.raw
    assert "\x1b[2m" not in shown([["thought", "a"]], env={"NO_COLOR": "1", "TERM": "dumb"}).raw


@pytest.mark.parametrize("columns", [30, 100])
def test_a_terminal_that_changes_its_size_loses_no_text(columns):
    code = (
        "import sys; from h2o_pack.cli.reply_view import *; sys.stdin.readline();"
        "view = MarkdownView(Terminal(quiet=True));"
        "view.show(TextEvent(text='A paragraph with some words, '));"
        "sys.stdin.readline(); view.show(TextEvent(text='and its end.'));"
        "view.show(NoteEvent(text=''))"
    )
    with in_terminal(sys.executable, "-c", code, columns=60, stdin=subprocess.PIPE) as session:
        session.process.stdin.write(b"\n")
        session.process.stdin.flush()
        session.wait_for("words,")
        session.resize(columns)
        session.process.stdin.write(b"\n")
        session.process.stdin.flush()
        assert session.ended() == 0
    whole = " ".join(session.screen.text.split())
    assert whole.endswith("A paragraph with some words, and its end.")


@pytest.fixture
def at_prompt(tmp_path):
    """Start the command in a terminal; yields a function of its options."""
    settings = {"H2O_PACK_CACHE": str(tmp_path / "cache")}

    def start(*options, **terminal):
        command = (sys.executable, "-m", "h2o_pack", *CHAT, *options)
        return in_terminal(*command, env=settings, **terminal)

    return start


def test_at_a_terminal_replies_figures_and_the_history_are_there(at_prompt, tmp_path):
    with at_prompt("--max-kv", "40", "--recall", "--max-tokens", "2000") as session:
        session.wait_for("\n> ")
        session.type("Hello\n")
        session.wait_for("\x1b[1A")
        session.type("typed meanwhile\x03")
        session.wait_for("MB\x1b[0m")
        assert "typed meanwhile" not in session.screen.text.partition("stopped, ")[0]
        session.wait_for("> ", 2)
        session.type("\x15/hel\n")
        session.wait_for("error: ")
        session.wait_for("\n> ", 3)
        session.type("half a mess")
        session.wait_for("half a mess")
        session.interrupt()
        session.wait_for("leaves.")
        session.wait_for("\n> ", 4)
        session.type("\x04")
        assert session.ended() == ExitCode.OK
    assert "\ufffd" not in session.raw
    lines = session.screen.lines
    assert "demo, 40 rows, kv 16 and recall. /help lists the commands." in lines
    figures = (
        r"stopped, \d+ read, \d+ kept, \d\.\d MB, .* tokens/s, [\d,]+ rows read of \d\.\d MB"
    )
    assert any(re.fullmatch(figures, line) for line in lines)
    history = tmp_path / "cache" / "chat-history"
    assert history.read_text() == "Hello\n/hel\n"
    assert stat.S_IMODE(history.stat().st_mode) == 0o600


@pytest.mark.nightly(
    "test_at_a_terminal_replies_figures_and_the_history_are_there, but for how it leaves"
)
def test_ctrl_c_stops_the_reply_and_at_the_prompt_leaves_without_a_history(at_prompt, tmp_path):
    with at_prompt("--max-tokens", "2000", "--no-history") as session:
        session.wait_for("\n> ")
        session.type("Hello\n")
        session.wait_for("\x1b[1A")
        session.type("\x03")
        session.wait_for("stopped, ")
        session.wait_for("> ", 2)
        session.interrupt()
        assert session.ended() == ExitCode.INTERRUPTED
    assert not session.screen.is_cursor_hidden
    assert not (tmp_path / "cache" / "chat-history").exists()


@pytest.mark.nightly("test_a_pipe_is_one_message_and_gets_only_the_replys_text")
def test_output_into_a_file_is_the_reply_and_the_prompt_stays_at_the_terminal(
    at_prompt, tmp_path
):
    with (tmp_path / "reply").open("wb") as file, at_prompt(stdout=file) as session:
        session.wait_for("\n> ")
        session.type("Hello\n")
        session.wait_for("tokens/s")
        session.type("\x04")
        assert session.ended() == ExitCode.OK
    assert (tmp_path / "reply").read_text() == talk(says="Hello").stdout
