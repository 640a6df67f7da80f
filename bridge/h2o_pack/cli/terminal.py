"""What a command shows: results to stdout, everything else to stderr.

All that a command prints passes through `plain`, whichever library prints it: in
`plain_output`, and before rich adds its colors in `with_plain_text`. So no name, message or
template of a model, a lock or a report reaches the terminal with characters that it obeys.
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
    from rich.console import Console, ConsoleOptions, ConsoleRenderable
    from rich.measure import Measurement
    from rich.segment import Segment
    from rich.status import Status

    from h2o_pack.progress import BarAdvance, ProgressReporter, Unit
    from h2o_pack.results import Result

LEAST_WIDTH = 20
ASCII = ("ascii", "us-ascii", "ansi_x3.4-1968")
WIDTH = 80  # where the width is not known
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""What terminals obey: controls but for tab and newline, and changes of direction."""


@dataclass(frozen=True)
class Terminal:
    """How a command was asked to show what it does.

    json: the result as one JSON document on stdout. quiet: errors and that document
    only. verbose: each thing that is done, on a line with the seconds since the start.
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
        elif not self.quiet:
            people(results())

    def tell(self, people: Callable[[Console], None]) -> None:
        """Print something before the result, which people alone are told."""
        if not (self.json or self.quiet):
            people(results())

    @contextmanager
    def progress(self, *, log: bool = False) -> Iterator[ProgressReporter]:
        """Show what is being done on one line, if somebody looks at it.

        What is done stays on lines of its own, with `log` also where nobody looks.
        """
        from h2o_pack.progress import silent

        screen = messages()
        if self.quiet or not (screen.is_terminal or log or self.verbose):
            yield silent
            return
        live = screen.is_terminal and not self.verbose
        status = screen.status("")
        with status if live else nullcontext():
            yield Reporter(self, screen, status if live else None)


@dataclass(frozen=True)
class Reporter:
    """Reports progress on a screen; `status` is its moving line, if it has one."""

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
            line = plain(text)[: max(LEAST_WIDTH, self.screen.width - 4)]
            self.status.update(escape(line))

    @contextmanager
    def bar(self, text: str, total: int, unit: Unit = "bytes") -> Iterator[BarAdvance]:
        """Show a bar where somebody looks, and a line where only a log does."""
        if self.status is None:
            self(text)
            yield lambda _amount: None
            return
        self.status.stop()
        try:
            with bars(self.screen, unit) as progress:
                task = progress.add_task(plain(text), total=total)
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


def results() -> Console:
    """Return where results for people go: a file or pipe is as wide as an old terminal."""
    from rich import console as rich_console

    class Results(rich_console.Console):
        def on_broken_pipe(self) -> None:
            """Leave it to the command; rich would end the process with 1."""
            raise BrokenPipeError

    console = Results(highlight=False, soft_wrap=True)
    with_plain_text(console)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = WIDTH
    return console


def messages() -> Console:
    """Return where progress and remarks go."""
    from rich.console import Console

    return with_plain_text(Console(stderr=True, highlight=False, soft_wrap=True))


def plain(text: str) -> str:
    """Return text in which what a terminal obeys is U+FFFD."""
    return OBEYED.sub("\ufffd", text)


class PlainStream:
    """A stream whose text passes through `plain`; rich finds the stream itself by its name."""

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream
        if isinstance(stream, TextIOWrapper) and stream.encoding.lower() in ASCII:
            # As click does, which would write around this stream to its bytes.
            stream.reconfigure(encoding="utf-8", errors="replace")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)

    def write(self, text: str) -> int:
        """Write text, without what a terminal obeys."""
        return self.rich_proxied_file.write(plain(text))

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)


@contextmanager
def plain_output() -> Iterator[None]:
    """Let all that is printed pass through `plain`: warnings and messages of libraries too."""
    before = sys.stdout, sys.stderr
    plain_out, plain_err = PlainStream(sys.stdout), PlainStream(sys.stderr)
    sys.stdout, sys.stderr = plain_out, plain_err
    try:
        yield
    finally:
        if sys.stdout is plain_out:  # click keeps a broken pipe's stream from being flushed
            sys.stdout, sys.stderr = before


def echo_json(text: str) -> None:
    """Print JSON, in which what a terminal obeys is written as an escape."""
    click.echo(OBEYED.sub(lambda match: f"\\u{ord(match[0]):04x}", text))


def with_plain_text(console: Console) -> Console:
    """Let all that a console prints pass through `plain`; rich's own colors stay."""
    from rich.console import RenderHook
    from rich.measure import Measurement
    from rich.segment import Segment

    class PlainRenderable:
        """Something that rich prints."""

        def __init__(self, inner: ConsoleRenderable) -> None:
            self.inner = inner

        def __rich_console__(self, into: Console, options: ConsoleOptions) -> Iterator[Segment]:
            for segment in into.render(self.inner, options):
                control = segment.control is not None
                yield segment if control else Segment(plain(segment.text), segment.style)

        def __rich_measure__(self, into: Console, options: ConsoleOptions) -> Measurement:
            return Measurement.get(into, options, self.inner)

    class PlainText(RenderHook):
        """Wraps each printed object in `PlainRenderable`."""

        def process_renderables(
            self, renderables: list[ConsoleRenderable]
        ) -> list[ConsoleRenderable]:
            return [PlainRenderable(renderable) for renderable in renderables]

    console.push_render_hook(PlainText())
    return console
