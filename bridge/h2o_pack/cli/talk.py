"""Talks with a model: reads messages and commands, shows replies."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from h2o_pack.chat import saved
from h2o_pack.chat.conversation import Conversation
from h2o_pack.chat.events import NoteEvent
from h2o_pack.chat.model import ChatModel
from h2o_pack.cli.frame import in_lines
from h2o_pack.cli.reply_view import View, tell
from h2o_pack.cli.terminal import Terminal, original
from h2o_pack.errors import UserError, nearest, usage_error
from h2o_pack.files.paths import cache_folder

PROMPT = "> "
HISTORY, REMEMBERED = "chat-history", 1000
COMMANDS = {
    "/reset": "forget the conversation, but not the system prompt",
    "/system TEXT": "begin again with another system prompt; without TEXT, with none",
    "/think on|off": "let the model think before it answers, or not",
    "/save FILE": "save the conversation",
    "/load FILE": "continue a saved conversation",
    "/help": "show this list",
    "/quit": "leave, as Ctrl-D does",
}
HELP = "\n".join(f"{name:<14} {meaning}" for name, meaning in COMMANDS.items())
LOCAL_MODES = 3
"""The place of the flags that a terminal itself obeys, in what `termios` returns."""
LEAVE = "Ctrl-C again or Ctrl-D leaves."


class Talk:
    """A conversation at a terminal, or through a pipe."""

    def __init__(self, conversation: Conversation, view: View, out: Terminal) -> None:
        self._conversation = conversation
        self._view = view
        self._out = out

    def at_terminal(self, *, history: bool) -> None:
        """Talk until the user leaves; an error of a message or command is shown.

        Raises KeyboardInterrupt: the user left with Ctrl-C.
        """
        was_stopped = False
        with remembered(history):
            while True:
                try:
                    line = asked()
                except EOFError:
                    click.echo(err=True)
                    return
                except KeyboardInterrupt:
                    click.echo(err=True)
                    if was_stopped:
                        raise
                    was_stopped = True
                    click.echo(LEAVE, err=True)
                    continue
                try:
                    was_stopped = False
                    if not line.strip():
                        continue
                    if line.startswith("/"):
                        if not self.obey(line):
                            return
                    else:
                        was_stopped = self.answer(line)
                except UserError as error:
                    for entry in error.errors:
                        click.echo(in_lines(f"error: {entry}"), err=True)

    def through_pipe(self, lines: Iterator[str], *, by_line: bool) -> None:
        """Answer a whole text, or each line, which may be a command; an error ends it."""
        if not by_line:
            text = "".join(lines).strip("\n")
            if not text.strip():
                raise usage_error("the input is empty", "Write a message to it.")
            self.answer(text)
            return
        for line in lines:
            text = line.rstrip("\n")
            if text.startswith("/"):
                if not self.obey(text):
                    return
            elif text.strip():
                self.answer(text)

    def answer(self, message: str) -> bool:
        """Show the reply to a message; returns whether Ctrl-C stopped it."""
        with keys_unseen(), until_ctrl_c() as stopped:
            with self._out.progress() as say:

                def on_read(done: int, total: int) -> None:
                    say(f"reading {done:,} of {total:,} tokens")

                events = self._conversation.reply(message, stopped, on_read)
                first = next(events)
            self._view.show(first)
            for event in events:
                self._view.show(event)
            return stopped()

    def obey(self, line: str) -> bool:
        """Run a command; returns whether the conversation goes on."""
        name, _, rest = line.strip().partition(" ")
        talk, rest = self._conversation, rest.strip()
        if name == "/quit":
            return False
        if name == "/help":
            self._note(HELP)
        elif name == "/reset":
            talk.begin_again(talk.system_prompt)
            self._note("the conversation begins again")
        elif name == "/system":
            talk.begin_again(rest)
            what = "this system prompt" if rest else "no system prompt"
            self._note(f"the conversation begins again with {what}")
        elif name == "/think":
            if rest not in ("on", "off"):
                raise usage_error("/think needs on or off", "Write /think on or /think off.")
            talk.think(rest == "on")
            self._note(f"thinking is {rest}")
        elif name in ("/save", "/load"):
            if not rest:
                raise usage_error(f"{name} needs the name of a file", f"Write {name} FILE.")
            path = Path(rest).expanduser()
            if name == "/save":
                saved.save(talk, path)
                self._note(f"saved to {path}")
            else:
                saved.load(talk, path)
                self._note(f"{len(talk.messages)} messages from {path}")
        else:
            names = [command.partition(" ")[0] for command in COMMANDS]
            near = nearest(name, names)
            raise usage_error(f"{name} is no command", f"{near}/help lists the commands.")
        return True

    def _note(self, text: str) -> None:
        self._view.show(NoteEvent(text=text))


def greet(model: ChatModel, out: Terminal) -> None:
    """Say which model and cache this is, and what to know of them, each in a line."""
    tell(f"{model.describe()}. /help lists the commands.", out)
    for remark in model.remarks:
        sentence, point, _ = remark.partition(". ")
        tell(f"note: {sentence}{point.rstrip()}", out)


def asked() -> str:
    """Ask for a line at the terminal; EOFError at the end of the input."""
    if sys.stdout.isatty():
        return input(PROMPT)
    click.echo(PROMPT, nl=False, err=True)  # stdout is for the replies
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.rstrip("\n")


@contextmanager
def until_ctrl_c() -> Iterator[Callable[[], bool]]:
    """Yield a function that says whether Ctrl-C was pressed; the second one interrupts.

    A step of the model must not be interrupted, because some caches would have read it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    pressed: list[int] = []

    def note(number: int, frame: Any) -> None:
        if pressed:
            signal.default_int_handler(number, frame)
        pressed.append(number)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def keys_unseen() -> Iterator[None]:
    """Do not show keys that are pressed during a reply: they would stand inside it."""
    if not sys.stdin.isatty():
        yield
        return
    import termios

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    unseen = termios.tcgetattr(terminal)
    unseen[LOCAL_MODES] &= ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSADRAIN, unseen)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


@contextmanager
def remembered(wanted: bool) -> Iterator[None]:  # noqa: FBT001
    """Let the user go back to earlier lines, kept in a file that only the user can read."""
    try:
        import readline
    except ImportError:  # Python was built without it
        yield
        return
    readline.clear_history()
    path = cache_folder() / HISTORY
    if wanted:
        with suppress(OSError):
            readline.read_history_file(path)
    try:
        yield
    finally:
        if wanted:
            with suppress(OSError):
                path.parent.mkdir(parents=True, exist_ok=True)
                # Made with its mode first: readline keeps the mode of a file that exists.
                flags = os.O_WRONLY | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
                os.close(os.open(path, flags, 0o600))
                path.chmod(0o600)
                readline.set_history_length(REMEMBERED)
                readline.write_history_file(path)


def input_lines() -> Iterator[str]:
    """Return the lines of the input; UserError if it is not UTF-8."""
    try:
        yield from original(sys.stdin)
    except UnicodeDecodeError as error:
        raise usage_error("the input is not UTF-8 text", "Give text in UTF-8.") from error
