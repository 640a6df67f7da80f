"""The output of commands: results on stdout, everything else on stderr.

All output passes through `plain`, even that of libraries: in `plain_output`, and, before rich
adds its colors, in `plain_console`. So control characters in a name, a message or a template
of a model, a lock or a report never reach the terminal.

On a terminal, the current step is a line below all other output (`StepLine`).
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, ClassVar, TextIO, cast

import click

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    from h2o_pack.progress import BarAdvance, ProgressReporter, Unit
    from h2o_pack.results import Result

LEAST_WIDTH = 20
ASCII = ("ascii", "us-ascii", "ansi_x3.4-1968")
WIDTH = 80  # columns, if the terminal's width is unknown
CONTROL_CHARACTERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters except tab and newline, and characters that set a text direction."""


@dataclass(frozen=True)
class Terminal:
    """How a command shows its progress and its result.

    json: print the result as one JSON document on stdout. quiet: print only errors and that
    document. verbose: print each step on a line, with the seconds since the start.
    """

    json: bool = False
    quiet: bool = False
    verbose: bool = False
    started: float = field(default_factory=time.monotonic)

    def show(
        self, result: Result | Mapping[str, Any], people: Callable[[Console], None]
    ) -> None:
        """Print a result: as JSON for machines, as a table for people."""
        if self.json:
            from h2o_pack.results import to_json

            echo_json(to_json(result))
        else:
            self.tell(people)

    def tell(self, people: Callable[[Console], None]) -> None:
        """Print text for people."""
        if not (self.json or self.quiet):
            people(plain_console())

    @contextmanager
    def progress(self, *, log: bool = False) -> Iterator[ProgressReporter]:
        """Show the current step; log: if stderr is no terminal, print each finished step."""
        from h2o_pack.progress import silent

        stream = original(sys.stderr)
        is_terminal = stream.isatty()
        if self.quiet or not (is_terminal or log or self.verbose):
            yield silent
        elif self.verbose or not is_terminal or is_dumb():
            yield Reporter(self)
        else:
            with StepLine(stream).at_the_end() as line:
                yield Reporter(self, line)


@dataclass(frozen=True)
class Reporter:
    """Reports progress on stderr; line: shows the current step, None if there is none."""

    terminal: Terminal
    line: StepLine | None = None

    def __call__(self, text: str, *, done: bool = False) -> None:
        """Show a step that begins, or that is done."""
        if self.terminal.verbose:
            seconds = time.monotonic() - self.terminal.started
            click.echo(plain(f"{seconds:7.2f} s  {text}"), err=True)
        elif done:
            click.echo(plain(text), err=True)
        elif self.line is not None:
            self.line.show(text)

    @contextmanager
    def bar(self, text: str, total: int, unit: Unit = "bytes") -> Iterator[BarAdvance]:
        """Show how much is done: on a terminal all the time, elsewhere at each quarter."""
        amount = Amount(text, total, unit)
        line = self.line
        if line is None:
            self(text, done=True)
        else:
            line.show(text)

        def advance(count: int) -> None:
            is_quarter = amount.add(count)
            if line is not None:
                line.show(str(amount), step=text)
            elif is_quarter:
                self(str(amount), done=True)

        yield advance


@dataclass
class Amount:
    """How much of a long task is done; its text has the speed too if the unit is bytes."""

    text: str
    total: int
    unit: Unit
    done: int = 0
    _quarters: int = 0
    _before: deque[tuple[float, int]] = field(default_factory=deque)

    def add(self, count: int) -> bool:
        """Add an amount; returns whether one more quarter is done, but not yet all."""
        now = time.monotonic()
        if not self._before or now - self._before[-1][0] > RECENT / 20:
            self._before.append((now, self.done))
        while now - self._before[0][0] > RECENT:
            self._before.popleft()
        self.done += count
        quarters = 4 * self.done // self.total if self.total else 0
        is_next = self._quarters < quarters < QUARTERS
        self._quarters = max(self._quarters, quarters)
        return is_next

    def __str__(self) -> str:
        share = f"{100 * self.done // self.total} %" if self.total else ""
        if self.unit == "items":
            return f"{self.text}: {share}, {self.done:,} of {self.total:,}"
        from h2o_pack.sizes import megabytes

        text = f"{self.text}: {share}, {megabytes(self.done)} of {megabytes(self.total)} MB"
        now = time.monotonic()
        since, before = self._before[0] if self._before else (now, self.done)
        if now - since < 1 or self.done <= before:
            return text
        speed = (self.done - before) / (now - since)
        left = time.strftime("%M:%S", time.gmtime((self.total - self.done) / speed))
        return f"{text}, {megabytes(speed)} MB/s, {left} left"


RECENT = 10.0
"""The seconds over which the speed of a task is measured."""
QUARTERS = 4
TICK = 0.25
"""The seconds after which the line of a step is drawn again."""
SLOW = 2
"""The seconds of a step after which its line says how long it takes."""
ERASE = "\r\x1b[K"


class StepLine:
    """The current step, as the last line of a terminal.

    Before anything else is written to the terminal, the line vanishes, and it comes back where
    a line begins. The line needs no hidden cursor and no state of the terminal, so nothing has
    to be restored, however the program ends.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._text = self._step = self._drawn = ""
        self._since = self._drawn_at = 0.0
        self._is_line_begin = True
        self._lock = threading.RLock()
        self._ended = threading.Event()

    @contextmanager
    def at_the_end(self) -> Iterator[StepLine]:
        """Show the line below what `Output` writes, until the block ends."""
        ticker = threading.Thread(target=self._tick, daemon=True)
        ticker.start()
        before, Output.step_line = Output.step_line, self
        try:
            yield self
        finally:
            Output.step_line = before
            self._ended.set()
            with self._lock:
                self._erase()
                self._text = ""

    def show(self, text: str, *, step: str = "") -> None:
        """Show a text; step: the step of which it tells, if that is not the text itself."""
        with self._lock:
            now, step = time.monotonic(), step or text
            is_new = step != self._step
            self._text = " ".join(plain(text).split())
            if is_new:
                self._step, self._since = step, now
            if is_new or now - self._drawn_at >= TICK:
                self._draw()

    @contextmanager
    def away(self, text: str) -> Iterator[None]:
        """Erase the line while a text is written."""
        with self._lock:
            self._erase()
            yield
            self._is_line_begin = text.endswith("\n")

    def _tick(self) -> None:
        while not self._ended.wait(TICK):
            with self._lock:
                self._draw()

    def _draw(self) -> None:
        if not self._text or not self._is_line_begin or self._ended.is_set():
            return
        from rich.cells import cell_len, set_cell_size

        self._drawn_at = time.monotonic()
        seconds = int(self._drawn_at - self._since)
        time_taken = f"  {seconds} s" if seconds >= SLOW else ""
        # The terminal itself writes ^C behind the line, which must not begin another one.
        room = max(LEAST_WIDTH, self._columns() - len("^C ") - len(time_taken))
        text = self._text if cell_len(self._text) <= room else set_cell_size(self._text, room)
        if text + time_taken != self._drawn:
            self._drawn = text + time_taken
            self._write(f"\r{self._drawn}\x1b[K")

    def _erase(self) -> None:
        if self._drawn:
            self._drawn = ""
            self._write(ERASE)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()

    def _columns(self) -> int:
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or WIDTH
        except (OSError, ValueError):
            return WIDTH


def is_dumb() -> bool:
    """Whether the terminal cannot erase a line."""
    return os.environ.get("TERM", "").lower() in ("dumb", "unknown")


class Output:
    """A stream of a command, whose text passes through `plain` or another function."""

    step_line: ClassVar[StepLine | None] = None
    """The line that vanishes before anything is written to a terminal."""

    def __init__(self, stream: TextIO, clean: Callable[[str], str]) -> None:
        self.stream = stream
        self._clean = clean

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        """Write text without what `clean` removes."""
        line = Output.step_line
        if line is None or not self.stream.isatty():
            return self.stream.write(self._clean(text))
        with line.away(text):
            count = self.stream.write(self._clean(text))
            self.stream.flush()
        return count

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)


def original(stream: TextIO) -> TextIO:
    """Return the stream to which an `Output` writes, or the stream itself."""
    return stream.stream if isinstance(stream, Output) else stream


def plain_console(*, stderr: bool = False) -> Console:
    """Return a console whose output passes through `plain`, but keeps rich's own colors.

    In a file or a pipe, it is 80 columns wide. stderr: for progress and notes.
    """
    from rich import console as rich_console
    from rich.segment import Segment

    class PlainConsole(rich_console.Console):
        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterator[Segment]:
            """Render an object without control characters in its text."""
            for segment in super().render(renderable, options):
                control = segment.control is not None
                yield segment if control else Segment(plain(segment.text), segment.style)

        def on_broken_pipe(self) -> None:
            """Let the command handle a closed pipe, for which rich would exit with status 1."""
            raise BrokenPipeError

    stream = Output(original(sys.stderr if stderr else sys.stdout), str)
    console = PlainConsole(
        file=cast("TextIO", stream), highlight=False, soft_wrap=True, emoji=False
    )
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = WIDTH
    return console


def plain(text: str) -> str:
    """Replace control characters by U+FFFD."""
    return CONTROL_CHARACTERS.sub("\ufffd", text)


@contextmanager
def plain_output() -> Iterator[None]:
    """Pass all output through `plain`, including warnings and messages of libraries."""
    before = sys.stdout, sys.stderr
    for stream in before:
        if isinstance(stream, TextIOWrapper) and stream.encoding.lower() in ASCII:
            # click does the same, but then writes directly to the bytes of the original stream.
            stream.reconfigure(encoding="utf-8", errors="replace")
    outputs = [cast("TextIO", Output(stream, plain)) for stream in before]
    sys.stdout, sys.stderr = outputs
    try:
        yield
    finally:
        # click replaces the stream of a broken pipe by a stream that is not flushed.
        if sys.stdout is outputs[0]:
            sys.stdout, sys.stderr = before


def echo_json(text: str) -> None:
    """Print JSON in which control characters are escaped."""
    click.echo(CONTROL_CHARACTERS.sub(lambda match: f"\\u{ord(match[0]):04x}", text))
