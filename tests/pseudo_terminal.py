"""Programs in a pseudo-terminal, and what a person sees there."""

from __future__ import annotations

import codecs
import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.processes import ROOT

# A session's leader gets the terminal, so that Ctrl-C reaches it.
LEAD = "import fcntl, os, sys, termios; fcntl.ioctl(2, termios.TIOCSCTTY, 0); "
LEAD += "os.execvp(sys.argv[1], sys.argv[1:])"
TIMEOUT = 60.0
COLUMNS = 80
ESCAPE = re.compile(r"\x1b\[([?>]?)([0-9;]*)([A-Za-z])|\x1b([=>])")
HIDDEN = "25"
ALLOWED_MODES = ("2004", HIDDEN)
"""Private modes: bracketed paste, which readline sets, and the cursor."""


class Screen:
    """The lines that a terminal shows, those that have left its top included.

    It refuses every sequence that no command should write, so that nothing of a half written or
    unknown sequence goes unnoticed. A cell has one character of any width.
    """

    def __init__(self, columns: int) -> None:
        self.columns = columns
        self.rows: list[list[str]] = [[]]
        self.row = self.column = 0
        self.is_cursor_hidden = False
        self.colors = 0
        self._rest = ""

    @property
    def lines(self) -> list[str]:
        """The lines without spaces at their ends."""
        return ["".join(row).rstrip() for row in self.rows]

    @property
    def text(self) -> str:
        """All lines, without empty ones at the end."""
        return "\n".join(self.lines).rstrip("\n")

    def write(self, text: str) -> None:
        """Show text with escape sequences; keep an incomplete sequence for the next text."""
        text, self._rest = self._rest + text, ""
        while text:
            if text[0] == "\x1b":
                match = ESCAPE.match(text)
                if match is None:
                    assert len(text) < 16, f"an unknown sequence: {text[:16]!r}"
                    self._rest = text
                    return
                self._obey(match[1], match[2], match[3] or "")
                text = text[match.end() :]
                continue
            self._put(text[0])
            text = text[1:]

    def _put(self, character: str) -> None:
        if character == "\r":
            self.column = 0
        elif character == "\n":
            self.row += 1
            if self.row == len(self.rows):
                self.rows.append([])
        elif character == "\b":
            self.column = max(0, self.column - 1)
        elif character == "\x07":
            pass
        else:
            assert character.isprintable(), f"a control character: {character!r}"
            if self.column == self.columns:
                self._put("\n")
                self.column = 0
            row = self.rows[self.row]
            row += [" "] * (self.column + 1 - len(row))
            row[self.column] = character
            self.column += 1

    def _obey(self, private: str, numbers: str, name: str) -> None:
        if private:
            assert numbers in ALLOWED_MODES, f"mode {numbers}"
            assert name in "hl", f"mode {numbers}{name}"
            if numbers == HIDDEN:
                self.is_cursor_hidden = name == "l"
            return
        count = int(numbers or 0) if ";" not in numbers else 0
        row = self.rows[self.row]
        if name == "K":
            assert count in (0, 2)
            del row[0 if count == 2 else self.column :]
        elif name == "J":
            assert count == 0
            del row[self.column :]
            del self.rows[self.row + 1 :]
        elif name == "A":
            self.row = max(0, self.row - max(1, count))
        elif name == "C":
            self.column += max(1, count)
        elif name == "D":
            self.column = max(0, self.column - max(1, count))
        elif name == "m":
            self.colors += 1
        elif name:
            raise AssertionError(f"an unknown sequence: {numbers}{name}")


class Session:
    """A program in a pseudo-terminal.

    raw: everything that it has written there. screen: what a person sees.
    """

    def __init__(self, process: subprocess.Popen[bytes], terminal: int, columns: int) -> None:
        self.process = process
        self.screen = Screen(columns)
        self.raw = ""
        self._terminal = terminal
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def read(self, seconds: float) -> bool:
        """Show what the program writes; False if it has closed the terminal."""
        ready, _, _ = select.select([self._terminal], [], [], seconds)
        if not ready:
            return True
        try:
            data = os.read(self._terminal, 1 << 16)
        except OSError:  # Linux reports a closed terminal so
            return False
        text = self._decoder.decode(data)
        self.raw += text
        self.screen.write(text)
        return bool(data)

    def wait_for(self, text: str, count: int = 1) -> None:
        """Read until the program has written a text so many times."""
        end = time.monotonic() + TIMEOUT
        while self.raw.count(text) < count:
            assert self.read(1), f"it ended without {text!r}:\n{self.raw}"
            assert time.monotonic() < end, f"it never wrote {text!r}:\n{self.raw}"

    def wait_for_end(
        self, pattern: re.Pattern[str], start: int, seconds: float = TIMEOUT
    ) -> None:
        """Read until what the program has written after `start` ends as the pattern does."""
        end = time.monotonic() + seconds
        while pattern.search(self.raw, max(start, len(self.raw) - 100)) is None:
            assert self.read(1), f"it ended:\n{self.raw[start:]}"
            assert time.monotonic() < end, f"it still runs:\n{self.raw[start:]}"

    def type(self, text: str) -> None:
        """Send keys; "\\x03" is Ctrl-C, "\\x04" Ctrl-D."""
        os.write(self._terminal, text.encode())

    def interrupt(self) -> None:
        """Press Ctrl-C once the program waits for a key.

        What it has written may be read before it waits, and a signal between the two would be
        noted only with the next key.
        """
        stat = Path(f"/proc/{self.process.pid}/stat")
        end = time.monotonic() + TIMEOUT
        while stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "S":
            assert time.monotonic() < end, "it never waited for a key"
            time.sleep(0.001)
        self.type("\x03")

    def resize(self, columns: int, rows: int = 24) -> None:
        """Change the terminal's size, which sends SIGWINCH."""
        fcntl.ioctl(
            self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0)
        )
        self.screen.columns = columns

    def ended(self) -> int:
        """Read to the end of the program; return its exit code."""
        end = time.monotonic() + TIMEOUT
        while self.read(1) and time.monotonic() < end:
            pass
        return self.process.wait(TIMEOUT)


@contextmanager
def in_terminal(
    *command: object,
    columns: int = COLUMNS,
    rows: int = 24,
    env: Mapping[str, str] | None = None,
    cwd: Path = ROOT,
    **streams: Any,
) -> Iterator[Session]:
    """Run a program in a pseudo-terminal; streams: stdin, stdout or stderr if elsewhere."""
    terminal, other = os.openpty()
    settings = {"TERM": "xterm-256color", "PYTHONUTF8": "1"}
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR")}
    size = struct.pack("HHHH", rows, columns, 0, 0)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, size)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", LEAD, *map(str, command)],
            env={**environment, **settings, **(env or {})},
            cwd=cwd,
            start_new_session=True,
            **{"stdin": other, "stdout": other, "stderr": other, **streams},
        )
    finally:
        signal.signal(signal.SIGINT, before)
        os.close(other)
    try:
        yield Session(process, terminal, columns)
    finally:
        process.kill()
        process.wait()
        if process.stdin is not None:
            process.stdin.close()
        os.close(terminal)
