"""The one type of error that users see, and the exit codes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from functools import partial
from typing import NoReturn

from h2o_py.errors import nearest as closest

ANOTHER_MODEL = "Download the model again, or choose another one."
GET_SWIFT = "https://swift.org/install"
BUILD_AGAIN = "In the checkout of h2o-pack, run: make --always-make install"
MOST = 20  # the most problems of one file or folder that are shown
LONGEST = 60  # the most characters of a value that are shown


class ExitCode(IntEnum):
    """The exit code of the process; `h2o-pack --help` describes them."""

    OK = 0
    DIFFERENT = 1
    USAGE = 2
    MODEL = 3
    OUTPUT = 4
    TOOL = 5
    VERSION = 6
    NETWORK = 7
    MEMORY = 8
    INTERNAL = 70
    INTERRUPTED = 130
    UNREAD = 141


MEANINGS = {
    ExitCode.OK: "success",
    ExitCode.DIFFERENT: "a check ran and found something wrong",
    ExitCode.USAGE: "an option or value that cannot be used",
    ExitCode.MODEL: "the model is unknown, unreadable or unsupported",
    ExitCode.OUTPUT: "the output folder is not h2o-pack's, is in use, or not writable",
    ExitCode.TOOL: "a tool or source is missing or failed (Swift, C++ compiler, Vendor)",
    ExitCode.VERSION: "h2o-pack needs another version of mlx, mlx-swift or mlx-swift-lm",
    ExitCode.NETWORK: "a download failed: no connection, refused, or not found",
    ExitCode.MEMORY: "the model does not fit into a device's or this machine's memory",
    ExitCode.INTERNAL: "an error in h2o-pack itself",
    ExitCode.INTERRUPTED: "interrupted",
    ExitCode.UNREAD: "the program that read the output ended first",
}


class UserError(Exception):
    """An error that the user can solve, printed as `what (where). remedy`."""

    def __init__(
        self, what: str, remedy: str, *, code: ExitCode, where: str | None = None
    ) -> None:
        self.what = what
        self.where = where
        self.remedy = remedy
        self.code = code
        place = f" ({where})" if where else ""
        super().__init__(f"{what}{place}. {remedy}")

    @property
    def errors(self) -> tuple[UserError, ...]:
        """The error itself, or the errors that it combines."""
        return (self,)


usage_error = partial(UserError, code=ExitCode.USAGE)
model_error = partial(UserError, code=ExitCode.MODEL)
output_error = partial(UserError, code=ExitCode.OUTPUT)
tool_error = partial(UserError, code=ExitCode.TOOL)
version_error = partial(UserError, code=ExitCode.VERSION)
network_error = partial(UserError, code=ExitCode.NETWORK)
memory_error = partial(UserError, code=ExitCode.MEMORY)
internal_error = partial(UserError, code=ExitCode.INTERNAL)


class CombinedError(UserError):
    """Several errors, printed one per line; the first one gives the exit code."""

    def __init__(self, errors: Sequence[UserError]) -> None:
        self._errors = tuple(part for error in errors for part in error.errors)
        first = self._errors[0]
        super().__init__(first.what, code=first.code, remedy=first.remedy, where=first.where)

    @property
    def errors(self) -> tuple[UserError, ...]:
        """All errors, in the order in which they were found."""
        return self._errors

    def __str__(self) -> str:
        """Return one line for each error."""
        return "\n".join(map(str, self._errors))


class Problems:
    """Collects errors, so that all of them are shown and not only the first.

    A block under `caught` may raise an error, and `add` adds one; `refuse` then raises all of
    them. where: the file or folder of the added errors.
    """

    def __init__(self, where: str = "", code: ExitCode = ExitCode.MODEL) -> None:
        self.found: list[UserError] = []
        self.where = where
        self.code = code

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Collect the UserError of a block."""
        try:
            yield
        except UserError as error:
            self.found.append(error)

    def add(self, what: str, remedy: str = ANOTHER_MODEL, where: str = "") -> None:
        """Add an error about `where`, by default the file or folder of these problems."""
        problem = UserError(what, where=where or self.where, remedy=remedy, code=self.code)
        if len(self.found) <= MOST and str(problem) not in map(str, self.found):
            self.found.append(problem)

    def fail(self, what: str, remedy: str = ANOTHER_MODEL, where: str = "") -> NoReturn:
        """Add an error after which reading cannot continue, and raise all."""
        self.add(what, remedy, where)
        self.refuse()
        raise AssertionError

    def refuse(self) -> None:
        """Raise the collected errors if there are any, but at most `MOST` of them."""
        if len(self.found) > MOST:
            more = f"there are more problems; these are the first {MOST}"
            self.found[MOST:] = [
                UserError(more, where=self.where, remedy=ANOTHER_MODEL, code=self.code)
            ]
        if len(self.found) == 1:
            raise self.found[0]
        if self.found:
            raise CombinedError(self.found)


def unreadable(where: object, what: str) -> UserError:
    """Make the error for a model with invalid files."""
    return model_error(what, ANOTHER_MODEL, where=str(where))


def in_one_line(error: BaseException) -> str:
    """Return an error's text in one line, or its type if it has no text."""
    return " ".join(str(error).split()) or type(error).__name__


def shown(value: object) -> str:
    """Write a value from an untrusted file as short text without control characters."""
    if isinstance(value, str):
        text = value if value.isprintable() else ascii(value)[1:-1]
        short = text[: LONGEST - 3] + "..." if len(text) > LONGEST else text
        return f'"{short}"'
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (list, tuple)):
        return f"a list of length {len(value)}"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, int) and abs(value) >= 10**20:
        return "a number of more than 20 digits"
    return str(value)


def nearest(name: str, names: Iterable[str]) -> str:
    """Return `Did you mean "x"? ` for the name closest to `name`; "" if none is close."""
    match = closest(name, names)
    return f'Did you mean "{match}"? ' if match else ""


def nearest_product(name: str, names: Iterable[str]) -> str:
    """Return the same for names of devices and models, whose numbers tell them apart.

    "iPhone 17" is not offered for "iPhone 11", but "iPhone 15 Pro" is for "iPhone15 pro".
    """
    numbers = numbers_in(name)
    return nearest(name, (other for other in names if numbers <= numbers_in(other)))


def numbers_in(name: str) -> Counter[str]:
    """Count the numbers in a name."""
    return Counter(re.findall(r"\d+", name))
