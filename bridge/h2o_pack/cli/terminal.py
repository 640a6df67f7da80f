"""What a command shows: results to stdout, everything else to stderr."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

    from h2o_pack.progress import BarAdvance, ProgressReporter, Unit
    from h2o_pack.results import Result

LEAST_WIDTH = 20
WIDTH = 80  # where the width is not known


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

            click.echo(to_json(result))
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
        """Tell what is being done, or what is finished."""
        from rich.markup import escape

        if self.terminal.verbose:
            seconds = time.monotonic() - self.terminal.started
            self.screen.print(f"{seconds:7.2f} s  {text}", markup=False)
        elif done:
            self.screen.print(text, markup=False)
        elif self.status is not None:
            self.status.update(escape(text[: max(LEAST_WIDTH, self.screen.width - 4)]))

    @contextmanager
    def bar(self, text: str, total: int, unit: Unit = "bytes") -> Iterator[BarAdvance]:
        """Show a bar where somebody looks, and a line where only a log does."""
        if self.status is None:
            self(text)
            yield lambda _amount: None
            return
        self.status.stop()
        try:
            with bars(self.screen, unit) as shown:
                task = shown.add_task(text, total=total)
                yield lambda amount: shown.advance(task, amount)
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
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = WIDTH
    return console


def messages() -> Console:
    """Return where progress and remarks go."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, soft_wrap=True)
