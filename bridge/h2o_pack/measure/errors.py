"""Errors of measurements that the user can put right."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from h2o_pack.errors import ExitCode, UserError


def usage_error(what: str, remedy: str) -> UserError:
    """Make the error for an option or a file that cannot be used."""
    return UserError(what, remedy=remedy, code=ExitCode.USAGE)


def read_text(path: Path, remedy: str) -> str:
    """Read a file of UTF-8 text.

    Raises:
        UserError: it cannot be read, or is not such text; `remedy` says what to give.

    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise usage_error(f"{path} cannot be read: {error.strerror or error}", remedy) from None
    except UnicodeDecodeError as error:
        raise usage_error(f"{path} cannot be read: {error}", remedy) from None


@contextmanager
def writing(output: Path) -> Iterator[None]:
    """Turn a failure to write below `output` into an error that names the file.

    Raises:
        UserError: a file or folder cannot be written.

    """
    try:
        yield
    except OSError as error:
        raise UserError(
            f"{error.filename or output} cannot be written: {error.strerror or error}",
            remedy="Give another place for the output.",
            code=ExitCode.OUTPUT,
        ) from error
