"""What the hub refuses, as errors that say what to do."""

# ruff: noqa: PLC0415 - imports inside functions keep `h2o-pack --help` quick

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from h2o_pack.errors import ExitCode, UserError, nearest
from h2o_pack.facts import known_models

if TYPE_CHECKING:
    from collections.abc import Iterator

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
