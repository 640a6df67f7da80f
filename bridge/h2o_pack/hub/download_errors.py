"""What the hub or the way to it does wrong, in words that say what to do."""

# ruff: noqa: PLC0415 - imports inside functions keep `h2o-pack --help` quick

from __future__ import annotations

import errno
from contextlib import contextmanager
from typing import TYPE_CHECKING

from h2o_pack.errors import ExitCode, UserError
from h2o_pack.hub.errors import explained

if TYPE_CHECKING:
    from collections.abc import Iterator

    from h2o_pack.architectures.model import Model, ModelFile

AGAIN = "Run the command again; what has arrived is kept."
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def hub_errors(model: Model) -> Iterator[None]:
    """Turn the errors of a download into UserErrors: the hub's, the network's, the disk's."""
    try:
        with explained(model.id, model.commit), causes():
            yield
    except OSError as error:
        if error.filename or error.errno in FULL:
            raise UserError(
                f"the hub's cache cannot be written: {error.strerror}",
                where=str(error.filename) if error.filename else None,
                remedy=f"Free space, or set HF_HUB_CACHE to another folder. {AGAIN}",
                code=ExitCode.OUTPUT,
            ) from error
        told = str(error).splitlines()
        raise UserError(
            f"{model.id} cannot be fetched: {told[0] if told else repr(error)}",
            remedy=f"Check the network. {AGAIN}",
            code=ExitCode.NETWORK,
        ) from error


@contextmanager
def causes() -> Iterator[None]:
    """Raise what the client found, where it only says that the cache lacks a file."""
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        yield
    except LocalEntryNotFoundError as error:
        if isinstance(error.__cause__, Exception):
            raise error.__cause__ from error
        raise


def changed_on_hub(model: Model, file: ModelFile) -> UserError:
    """Make the error for a file that is another one than when the model was resolved."""
    return UserError(
        f"{file.path} of {model.id} is not what the hub listed at {model.commit[:12]}: "
        "it changed in between",
        remedy="Run the command again, so that the model is looked up anew.",
        code=ExitCode.MODEL,
    )


def other_bytes(model: Model, file: ModelFile, found: str) -> UserError:
    """Make the error for content that does not have the hash that the hub lists."""
    return UserError(
        f"{file.path} of {model.id} arrived with the sha256 {found[:12]}… instead of "
        f"{file.sha256[:12]}…",
        remedy="It is removed. Run the command again; if it stays so, something on the way "
        "(a proxy, a mirror) changes files.",
        code=ExitCode.NETWORK,
    )
