"""Shows a conversation: Markdown on a terminal, the replies' text in a pipe, or JSON."""

from __future__ import annotations

import json
import shutil
import sys
import time
from typing import Any, Protocol

import click
import msgspec
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown
from rich.text import Text
from rich.theme import Theme

from h2o_pack.chat.events import Event, NoteEvent, TextEvent, ThoughtEvent, UsageEvent
from h2o_pack.cli.terminal import Terminal, echo_json, is_dumb, plain_console
from h2o_pack.models.texts import first_difference
from h2o_pack.naming import readable
from h2o_pack.printing import caption
from h2o_pack.sizes import megabytes

REDRAWN = 1 / 15
"""The seconds after which new text of a reply is shown."""


class View(Protocol):
    """Shows what happens in a conversation."""

    def show(self, event: Event) -> None:
        """Show an event; a `UsageEvent` ends a reply."""


def view_for(out: Terminal) -> View:
    """Return the view for stdout and the command's options."""
    if out.json:
        return JsonView()
    return MarkdownView(out) if sys.stdout.isatty() and not is_dumb() else PlainView(out)


class JsonView:
    """Prints each event as a JSON object on a line."""

    def show(self, event: Event) -> None:
        """Print an event."""
        text = json.dumps(msgspec.to_builtins(event), ensure_ascii=False)
        echo_json(readable(text))


class PlainView:
    """Prints the text of replies as it is; thoughts are left out."""

    def __init__(self, out: Terminal) -> None:
        self._out = out
        self._is_line_begin = True

    def show(self, event: Event) -> None:
        """Print an event."""
        if isinstance(event, TextEvent):
            click.echo(event.text, nl=False)
            sys.stdout.flush()
            self._is_line_begin = event.text.endswith("\n")
        elif isinstance(event, UsageEvent):
            if not self._is_line_begin:
                click.echo()
            self._is_line_begin = True
            tell_usage(event, self._out)
        elif isinstance(event, NoteEvent):
            tell(event.text, self._out)


class MarkdownView:
    """Shows replies as Markdown while they are generated, and thoughts dim above them."""

    def __init__(self, out: Terminal) -> None:
        self._out = out
        console = plain_console()
        console.push_theme(THEME)
        self._lines = ChangingLines(console)
        self._kind = ""
        self._text = ""
        self._shown_at = 0.0

    def show(self, event: Event) -> None:
        """Show an event."""
        if isinstance(event, TextEvent | ThoughtEvent):
            if event.event != self._kind:
                self._finish()
                self._kind = event.event
            self._text += event.text
            if time.monotonic() - self._shown_at >= REDRAWN:
                self._draw()
                self._shown_at = time.monotonic()
            return
        self._finish()
        self._kind = ""
        if isinstance(event, UsageEvent):
            tell_usage(event, self._out)
        elif isinstance(event, NoteEvent):
            tell(event.text, self._out)

    def _draw(self) -> None:
        """Show the text; only its last part stays changeable."""
        part, done = (Thought, last_line) if self._kind == "thought" else (Reply, last_block)
        begin = done(self._text)
        if begin:
            self._lines.update(part(self._text[:begin]))
            self._lines.keep()
            if part is Reply:
                click.echo()
            self._text = self._text[begin:]
        self._lines.update(part(self._text))

    def _finish(self) -> None:
        """Show the rest of a part, and an empty line after it."""
        if self._text.strip() or self._kind:
            self._draw()
            self._lines.keep()
            click.echo()
        self._text = ""


class ChangingLines:
    """The last lines of a terminal, as long as they may change.

    Only lines that differ are written again, so nothing flickers.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown: list[str] = []
        self._width = 0

    def update(self, content: Any) -> None:
        """Show content in the place of what was shown before."""
        size = shutil.get_terminal_size()
        if self._shown and size.columns < self._width:
            self._shown = []  # the terminal has wrapped these lines, so they stay as they are
        # A wider terminal leaves the lines as they are, so the rest gets their width.
        self._width = self._width if self._shown else size.columns
        with self._console.capture() as capture:
            self._console.print(content, width=self._width, soft_wrap=False)
        lines = [line.rstrip() for line in capture.get().rstrip("\n").split("\n")]
        same = first_difference(lines, self._shown)
        back = min(len(self._shown) - same, size.lines - 1)  # the others left the screen
        if lines == self._shown:
            return
        up = f"\x1b[{back}A" if back else ""
        new = "".join(f"{line}\n" for line in lines[len(self._shown) - back :])
        self._console.file.write(f"{up}\r\x1b[J{new}" if back else new)
        self._console.file.flush()
        self._shown = lines

    def keep(self) -> None:
        """Let the lines stay as they are."""
        self._shown = []


THEME = Theme(
    {
        "markdown.code": "bold",
        "markdown.block_quote": "italic",
        "markdown.item.number": "bold",
        "markdown.link": "",
        "markdown.link_url": "underline",
        "markdown.table.border": "dim",
        "markdown.table.header": "bold",
        **{f"markdown.h{level}": "bold" for level in range(2, 8)},
    }
)
"""Styles without colors, which are hard to read on a light or on a dark terminal."""


class PlainHeading(Heading):
    """A heading in bold at the left."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render the heading."""
        del console, options
        self.text.justify = "left"
        self.text.stylize("bold")
        yield self.text


class PlainCode(CodeBlock):
    """Code as it is, with an indent instead of a frame."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render the code."""
        del console, options
        lines = str(self.text).rstrip("\n").split("\n")
        yield Text("\n".join(f"    {line}" for line in lines))


class Reply(Markdown):
    """A reply. Links are text, because a model's text must not choose what a click opens."""

    elements = {  # noqa: RUF012 - rich declares it like this
        **Markdown.elements,
        "heading_open": PlainHeading,
        "fence": PlainCode,
        "code_block": PlainCode,
    }

    def __init__(self, text: str) -> None:
        super().__init__(text, hyperlinks=False)


def Thought(text: str) -> Text:  # noqa: N802 - stands beside `Reply`
    """Return thoughts, which are dim."""
    return Text(text.strip("\n"), style="dim")


def last_block(text: str) -> int:
    """Return where the last block of Markdown begins, which more text may change."""
    blocks = [token for token in Reply(text).parsed if token.level == 0]
    lines = [token.map[0] for token in blocks if token.map]
    return sum(len(line) for line in text.splitlines(keepends=True)[: max(lines, default=0)])


def last_line(text: str) -> int:
    """Return where the last line of a text begins."""
    return text.rstrip("\n").rfind("\n") + 1


def tell(text: str, out: Terminal) -> None:
    """Print a remark for people on stderr."""
    if not (out.quiet or out.json):
        in_words(text)


def tell_usage(usage: UsageEvent, out: Terminal) -> None:
    """Print the figures of a reply in one line on stderr, if a person reads it."""
    if out.quiet or not (sys.stderr.isatty() or out.verbose):
        return
    in_words(described(usage), style="dim")


def in_words(text: str, style: str = "") -> None:
    """Print text on stderr, with lines that end between words."""
    caption(text, plain_console(stderr=True), style)


def described(usage: UsageEvent) -> str:
    """Return the figures of a reply in one line."""
    rows, tokens = f"{usage.rows:,}", f"{usage.tokens:,}"
    parts = [
        {"end": "", "length": "cut off", "stopped": "stopped"}[usage.stop],
        f"{usage.read_tokens:,} read",
        f"{tokens} kept" if rows == tokens else f"{rows} of {tokens} kept",
        f"{megabytes(usage.cache_bytes)} MB",
        f"{usage.tokens_per_second:.1f} tokens/s" if usage.tokens_per_second else "",
    ]
    if usage.archive_bytes is not None:
        archive = f"of {megabytes(usage.archive_bytes)} MB"
        parts.append(f"{usage.archive_reads or 0:,} rows read {archive}")
    return ", ".join(part for part in parts if part)
