"""Collects what is wrong with a model, so that all of it is shown together."""

from __future__ import annotations

from typing import NoReturn

from h2o_pack import errors
from h2o_pack.errors import ExitCode, UserError

ELSE = "Download the model again, or choose another one."
MOST = 20
LONGEST = 60


class Problems(errors.Problems):
    """The problems of one thing, a file or a folder, which `where` names."""

    def __init__(self, where: str, code: ExitCode = ExitCode.MODEL) -> None:
        super().__init__()
        self.where = where
        self.code = code

    def add(self, what: str, remedy: str = ELSE, where: str = "") -> None:
        """Note a problem; without `where` it is where the others are."""
        problem = UserError(what, where=where or self.where, remedy=remedy, code=self.code)
        if len(self.found) <= MOST and str(problem) not in map(str, self.found):
            self.found.append(problem)

    def refuse(self) -> None:
        """Raise what was found, if anything was; of very many the first ones."""
        if len(self.found) > MOST:
            omitted = f"more problems omitted (first {MOST} shown)"
            self.found[MOST:] = [
                UserError(omitted, where=self.where, remedy=ELSE, code=self.code)
            ]
        super().refuse()

    def fail(self, what: str, remedy: str = ELSE, where: str = "") -> NoReturn:
        """Note a problem after which nothing more can be read, and raise all."""
        self.add(what, remedy, where)
        self.refuse()
        raise AssertionError


def unreadable(where: object, what: str) -> UserError:
    """Make the error for a model whose files are not as they should be."""
    return UserError(what, where=str(where), remedy=ELSE, code=ExitCode.MODEL)


def shown(value: object) -> str:
    """Write a value of someone else's file as short text without control characters."""
    if isinstance(value, str):
        text = value if value.isprintable() else ascii(value)[1:-1]
        short = text[: LONGEST - 3] + "..." if len(text) > LONGEST else text
        return f'"{short}"'
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (list, tuple)):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, int) and abs(value) >= 10**20:
        return "a number of more than 20 digits"
    return str(value)
