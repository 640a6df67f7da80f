"""No text of a model, a lock or a report reaches the terminal with what it obeys."""

import json
import logging
import os

import click
import pytest
from rich.table import Table

from h2o_pack.cli.frame import Commands
from h2o_pack.cli.terminal import Terminal, plain, plain_console
from h2o_pack.errors import ExitCode, UserError
from tests.processes import python

EVIL = "\x1b]0;PWN\x07\x9b31m\u202etxt"


@pytest.mark.parametrize("character", ["\x1b", "\x07", "\x9b", "\r", "\b", "\u202e", "\u2066"])
def test_control_characters_are_replaced(character):
    assert plain(f"a{character}b\n\tc") == "a\ufffdb\n\tc"


@pytest.mark.parametrize("stderr", [False, True])
def test_no_console_prints_a_control_character(stderr, capsys):
    table = Table("check")
    table.add_row(EVIL)
    screen = plain_console(stderr=stderr)
    screen.print(EVIL, markup=False)
    screen.print(table)
    screen.print("models/a:cat:b", markup=False)
    output = "".join(capsys.readouterr())
    assert output.count("PWN") == 2
    assert not set(output) & set("\x1b\x07\x9b\u202e")
    assert output.endswith("\nmodels/a:cat:b\n")  # no emoji


@pytest.mark.parametrize(
    "error",
    [
        UserError(EVIL, code=ExitCode.MODEL, remedy=EVIL),
        ValueError(EVIL),
        OSError(2, EVIL, EVIL),
    ],
)
@pytest.mark.parametrize("arguments", [[], ["--json"], ["--debug"]])
def test_no_error_contains_a_control_character(error, arguments, capsys, monkeypatch):
    def stop(**_options):
        raise error

    flags = [click.Option([name], is_flag=True) for name in ("--json", "--debug")]
    command = click.Command("stop", callback=stop, params=flags)
    monkeypatch.setattr(Commands, "get_command", lambda *_names: command)
    with pytest.raises(SystemExit):
        Commands({"": {"stop": "none"}}).main(["stop", *arguments], prog_name="h2o-pack")
    output = capsys.readouterr()
    assert "PWN" in output.err
    assert not set(output.out + output.err) & set("\x1b\x07\x9b\u202e")
    if arguments == ["--json"]:
        assert "PWN" in json.loads(output.out)["errors"][0]["what"]


def of_a_log():
    logging.StreamHandler().emit(logging.makeLogRecord({"msg": EVIL}))


def of_a_print():
    print(EVIL)  # noqa: T201


def of_a_usage_error():
    raise click.UsageError(EVIL)


def of_a_step():
    with Terminal(verbose=True).progress() as say:
        say(EVIL)


def of_a_question():
    click.confirm(EVIL, err=True)


@pytest.mark.parametrize(
    "library", [of_a_log, of_a_print, of_a_step, of_a_usage_error, of_a_question]
)
def test_nothing_that_a_library_prints_has_it(library, capsys, monkeypatch):
    command = click.Command("say", callback=library)
    monkeypatch.setattr(Commands, "get_command", lambda *_names: command)
    with pytest.raises(SystemExit):
        Commands({"": {"say": "none"}}).main(["say"], prog_name="h2o-pack")
    output = "".join(capsys.readouterr())
    assert "PWN" in output
    assert not set(output) & set("\x1b\x07\x9b\u202e")


WARN = """
import click, warnings
from h2o_pack.cli.frame import Commands
warn = click.Command("warn", callback=lambda: warnings.warn("\\x1b]0;PWN\\x07"))
Commands.get_command = lambda *names: warn
Commands({"": {"warn": "none"}}).main(["warn"])
"""


def test_nothing_that_python_warns_of_has_it():
    process = python("-c", WARN)  # pytest records warnings in this process
    assert "PWN" in process.stderr
    assert not set(process.stderr) & set("\x1b\x07")


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_a_name_in_an_option_has_none_of_it_in_any_encoding(encoding):
    settings = {"PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    arguments = ("plan", "--model", "demo", "--kv", EVIL)
    process = python("-m", "h2o_pack", *arguments, env=os.environ | settings)
    assert process.returncode == ExitCode.USAGE
    assert "PWN" in process.stderr
    assert not set(process.stderr) & set("\x1b\x07\x9b")
