"""The output of commands: results on stdout, everything else on stderr.

All output passes through `plain`, even that of libraries: in `plain_output`, and, before rich
adds its colors, in `plain_console`. So control characters in a name, a message or a template
of a model, a lock or a report never reach the terminal.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, TextIO

import click

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment
    from rich.status import Status

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

        screen = plain_console(stderr=True)
        if self.quiet or not (screen.is_terminal or log or self.verbose):
            yield silent
            return
        live = screen.is_terminal and not self.verbose
        status = screen.status("")
        with status if live else nullcontext():
            yield Reporter(self, screen, status if live else None)


@dataclass(frozen=True)
class Reporter:
    """Reports progress on a screen; status: the animated line of the step, if there is one."""

    terminal: Terminal
    screen: Console
    status: Status | None

    def __call__(self, text: str, *, done: bool = False) -> None:
        """Show a step that begins, or that is done."""
        from rich.markup import escape

        if self.terminal.verbose:
            seconds = time.monotonic() - self.terminal.started
            self.screen.print(f"{seconds:7.2f} s  {text}", markup=False)
        elif done:
            self.screen.print(text, markup=False)
        elif self.status is not None:
            line = text[: max(LEAST_WIDTH, self.screen.width - 4)]
            self.status.update(escape(line))

    @contextmanager
    def bar(self, text: str, total: int, unit: Unit = "bytes") -> Iterator[BarAdvance]:
        """Show a bar on a terminal, and a line of text elsewhere."""
        if self.status is None:
            self(text)
            yield lambda _amount: None
            return
        self.status.stop()
        try:
            with bars(self.screen, unit) as progress:
                task = progress.add_task(text, total=total)
                yield lambda amount: progress.advance(task, amount)
        finally:
            self.status.start()


def bars(screen: Console, unit: Unit) -> Any:
    """Make rich's bars: bytes with their rate, items with their count."""
    from rich import progress

    counted = (
        (progress.DownloadColumn(binary_units=False), progress.TransferSpeedColumn())
        if unit == "bytes"
        else (progress.MofNCompleteColumn(),)
    )
    return progress.Progress(
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        *counted,
        progress.TimeRemainingColumn(),
        console=screen,
        transient=True,
    )


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

    console = PlainConsole(stderr=stderr, highlight=False, soft_wrap=True, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = WIDTH
    return console


def plain(text: str) -> str:
    """Replace control characters by U+FFFD."""
    return CONTROL_CHARACTERS.sub("\ufffd", text)


class PlainStream:
    """A stream whose text passes through `plain`.

    rich looks for the original stream in the attribute `rich_proxied_file`.
    """

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream
        if isinstance(stream, TextIOWrapper) and stream.encoding.lower() in ASCII:
            # click does the same, but then writes directly to the bytes of the original stream.
            stream.reconfigure(encoding="utf-8", errors="replace")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)

    def write(self, text: str) -> int:
        """Write text without control characters."""
        return self.rich_proxied_file.write(plain(text))

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts without control characters."""
        for line in lines:
            self.write(line)


@contextmanager
def plain_output() -> Iterator[None]:
    """Pass all output through `plain`, including warnings and messages of libraries."""
    before = sys.stdout, sys.stderr
    plain_out, plain_err = PlainStream(sys.stdout), PlainStream(sys.stderr)
    sys.stdout, sys.stderr = plain_out, plain_err
    try:
        yield
    finally:
        # click replaces the stream of a broken pipe by a stream that is not flushed.
        if sys.stdout is plain_out:
            sys.stdout, sys.stderr = before


def echo_json(text: str) -> None:
    """Print JSON in which control characters are escaped."""
    click.echo(CONTROL_CHARACTERS.sub(lambda match: f"\\u{ord(match[0]):04x}", text))
