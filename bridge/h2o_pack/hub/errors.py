"""What the hub and the way to it do wrong, as errors that say what to do."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from huggingface_hub import constants
from huggingface_hub.errors import (  # type: ignore[attr-defined]
    DisabledRepoError,
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    HTTPError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from h2o_pack.architectures.model import Model, ModelFile
from h2o_pack.errors import ExitCode, UserError, nearest
from h2o_pack.facts import known_models

RESUME = "Run the command again; what has arrived is kept."
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
AGAIN = "Wait a little, then run the command again; what has arrived is kept."
OFFLINE = "Check the network, or give a local folder as --model."
UNSET = "Unset it, or give a local folder as --model."
UNAUTHORIZED, FORBIDDEN, BUSY, FAILING = 401, 403, 429, 500


class UnreachableError(UserError):
    """The hub cannot be asked: offline, or nobody answers."""


class WrongBytesError(UserError):
    """An answer of the hub is not what was asked for."""


@contextmanager
def explained(hub_id: str, revision: str) -> Iterator[None]:
    """Turn what huggingface_hub raises into errors that say what to do."""
    try:
        yield
    except GatedRepoError as error:
        raise refused(
            hub_id,
            "asks for its license to be accepted",
            f"Accept it at {constants.ENDPOINT}/{hub_id}, then run `hf auth login`, or set "
            "HF_TOKEN.",
        ) from error
    except DisabledRepoError as error:
        raise refused(hub_id, "was disabled on the hub", "Choose another model.") from error
    except RepositoryNotFoundError as error:
        names = [each.hub for each in known_models().values() if each.hub]
        raise refused(
            hub_id,
            "is not on the hub, or is private",
            f"{nearest(hub_id, names)}Check the spelling, or run `hf auth login` if it is "
            "private.",
        ) from error
    except RevisionNotFoundError as error:
        raise refused(
            hub_id,
            f"has no revision {revision!r}",
            "Give a branch, a tag or a whole commit id that its page lists.",
        ) from error
    except LocalEntryNotFoundError as error:
        raise unreachable(hub_id) from error
    except EntryNotFoundError as error:
        raise refused(
            hub_id,
            "lacks a file that inference needs, such as config.json",
            "Choose a model in MLX's format, such as one of mlx-community.",
        ) from error
    except HFValidationError as error:
        raise refused(
            hub_id, "is no id of a model", "Give OWNER/NAME as its page shows it."
        ) from error
    except OfflineModeIsEnabled as error:
        raise unreachable(hub_id, "HF_HUB_OFFLINE is set", UNSET) from error
    except HfHubHTTPError as error:
        raise answered(hub_id, error) from error
    except (HTTPError, ConnectionError, TimeoutError) as error:
        raise unreachable(hub_id) from error


def answered(hub_id: str, error: Exception) -> UserError:
    """Explain a status that is none of the hub's own refusals."""
    response = getattr(error, "response", None)
    status = getattr(response, "status_code", 0)
    if status == BUSY:
        return network(hub_id, "cannot be read: the hub has had too many requests (429)", AGAIN)
    if status >= FAILING:
        return network(hub_id, f"cannot be read: the hub answers {status}", AGAIN)
    if status in (UNAUTHORIZED, FORBIDDEN):
        return refused(
            hub_id,
            f"may not be read: the hub answers {status}",
            "Run `hf auth login` with an account that may read it, or set HF_TOKEN.",
        )
    return network(hub_id, f"cannot be read: the hub answers {status}", AGAIN)


def refused(hub_id: str, what: str, remedy: str) -> UserError:
    """Make the error for a model that the hub does not give."""
    return UserError(f"{hub_id} {what}", remedy=remedy, code=ExitCode.MODEL)


def network(hub_id: str, what: str, remedy: str) -> UserError:
    """Make the error for a hub that fails."""
    return UserError(f"{hub_id} {what}", remedy=remedy, code=ExitCode.NETWORK)


def wrong_bytes(hub_id: str, what: str) -> WrongBytesError:
    """Make the error for answers that are not what was asked for."""
    return WrongBytesError(
        f"{hub_id} cannot be read: the hub {what}", remedy=AGAIN, code=ExitCode.NETWORK
    )


def unreachable(
    hub_id: str, why: str = "the hub cannot be reached", remedy: str = OFFLINE
) -> UnreachableError:
    """Make the error for a hub that cannot be asked."""
    return UnreachableError(
        f"{hub_id} cannot be fetched: {why} and the model is not in its cache",
        remedy=remedy,
        code=ExitCode.NETWORK,
    )


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
                remedy=f"Free space, or set HF_HUB_CACHE to another folder. {RESUME}",
                code=ExitCode.OUTPUT,
            ) from error
        told = str(error).splitlines()
        raise UserError(
            f"{model.id} cannot be fetched: {told[0] if told else repr(error)}",
            remedy=f"Check the network. {RESUME}",
            code=ExitCode.NETWORK,
        ) from error


@contextmanager
def causes() -> Iterator[None]:
    """Raise what the client found, where it only says that the cache lacks a file."""
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
