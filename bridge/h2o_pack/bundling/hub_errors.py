"""What the hub or the way to it does wrong, in words that say what to do."""

# ruff: noqa: PLC0415 - imports inside functions keep `h2o-pack --help` quick

from __future__ import annotations

import errno
from contextlib import contextmanager
from typing import TYPE_CHECKING

from h2o_pack.errors import ExitCode, UserError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from h2o_pack.bundling.source import File, Source

AGAIN = "Run the command again; what has arrived is kept."
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def hub_errors(model_id: str) -> Iterator[None]:
    """Turn the errors of the hub's client into UserErrors."""
    import httpx2
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        yield
    except (HfHubHTTPError, HFValidationError, httpx2.HTTPError, OSError) as error:
        raise explained(model_id, error) from error


def explained(model_id: str, error: Exception) -> UserError:
    """Make the UserError for an error of the client: the first cause that says enough."""
    from huggingface_hub.errors import HfHubHTTPError

    chain = list(causes(error))
    for each in chain:
        for kinds, code, what, remedy in known_errors():
            if isinstance(each, kinds):
                name = model_id
                return UserError(what.format(id=name), remedy=remedy.format(id=name), code=code)
        if isinstance(each, HfHubHTTPError):
            return answered(model_id, each.response.status_code)
        if isinstance(each, OSError) and (each.filename or each.errno in FULL):
            return UserError(
                f"the hub's cache cannot be written: {each.strerror}",
                where=str(each.filename) if each.filename else None,
                remedy=f"Free space, or set HF_HUB_CACHE to another folder. {AGAIN}",
                code=ExitCode.OUTPUT,
            )
    told = str(chain[-1]).splitlines()
    return network(
        f"{model_id} cannot be fetched: {told[0] if told else repr(chain[-1])}",
        f"Check the network. {AGAIN}",
    )


def known_errors() -> tuple[tuple[tuple[type[Exception], ...], ExitCode, str, str], ...]:
    """Return (the client's errors, exit code, what, what next)."""
    from huggingface_hub import errors

    return (
        (
            (errors.GatedRepoError,),
            ExitCode.MODEL,
            "{id} asks for its licence to be accepted",
            "Accept it at https://huggingface.co/{id}, then run `hf auth login`.",
        ),
        (
            (errors.RepositoryNotFoundError,),
            ExitCode.MODEL,
            "{id} is not on the hub, or is private",
            "Check the spelling, or run `hf auth login` if it is private.",
        ),
        (
            (errors.RevisionNotFoundError, errors.RemoteEntryNotFoundError),
            ExitCode.MODEL,
            "{id} no longer has a file or commit that it had a moment ago",
            "Run the command again, so that the model is looked up anew.",
        ),
        (
            (errors.OfflineModeIsEnabled,),
            ExitCode.NETWORK,
            "{id} is not in the hub's cache, and HF_HUB_OFFLINE forbids fetching it",
            "Unset HF_HUB_OFFLINE, or give a local folder as --model.",
        ),
    )


def answered(model_id: str, status: int) -> UserError:
    """Make the error for an answer with a status that refuses."""
    if status in (401, 403):
        return refusal(
            f"the hub refuses {model_id} with status {status}: the token is missing or invalid",
            "Run `hf auth login`, or check HF_TOKEN.",
        )
    if status == 429:  # noqa: PLR2004 - HTTP's number
        return network(
            f"the hub answers too many requests (429) for {model_id}",
            f"Wait some minutes, or run `hf auth login` for a higher limit. {AGAIN}",
        )
    return network(f"the hub answers with status {status} for {model_id}", AGAIN)


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, what it was raised from, and so on."""
    while error is not None:
        yield error
        error = error.__cause__


def changed_on_hub(model: Source, file: File) -> UserError:
    """Make the error for a file that is another one than when the model was resolved."""
    return refusal(
        f"{file.path} of {model.id} is not what the hub listed at {model.commit[:12]}: "
        "it changed in between",
        "Run the command again, so that the model is looked up anew.",
    )


def other_bytes(model: Source, file: File, found: str) -> UserError:
    """Make the error for content that does not have the hash that the hub lists."""
    return UserError(
        f"{file.path} of {model.id} arrived with the sha256 {found[:12]}… instead of "
        f"{file.sha256[:12]}…",
        remedy="It is removed. Run the command again; if it stays so, something on the way "
        "(a proxy, a mirror) changes files.",
        code=ExitCode.NETWORK,
    )


def refusal(what: str, remedy: str) -> UserError:
    """Make an error about the model itself."""
    return UserError(what, remedy=remedy, code=ExitCode.MODEL)


def network(what: str, remedy: str) -> UserError:
    """Make an error about the way to the hub."""
    return UserError(what, remedy=remedy, code=ExitCode.NETWORK)
