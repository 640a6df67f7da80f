"""Addresses of model pages, as they are pasted from a browser."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from h2o_pack.errors import ExitCode, UserError, shown

HOSTS = ("huggingface.co", "www.huggingface.co", "hf.co")
WITH_REVISION = ("tree", "blob", "commit", "resolve")
OTHER_KINDS = ("datasets", "spaces", "collections", "papers")
ID_PARTS = 2


def model_of_address(name: str) -> str:
    """Return ID or ID@REVISION for a page of a model; anything else stays as it is.

    The pages of a branch, a commit and a file name their revision.

    Raises:
        UserError: the address is another site's, or of something that is not a model.

    """
    text = name.strip()
    has_scheme = text.startswith(("https://", "http://"))
    if not has_scheme and not text.startswith(tuple(f"{host}/" for host in HOSTS)):
        return name
    address = urlsplit(text if has_scheme else f"https://{text}")
    parts = [unquote(part) for part in address.path.split("/") if part]
    is_model = len(parts) >= ID_PARTS and parts[0] not in OTHER_KINDS
    if address.hostname not in HOSTS or not is_model:
        raise UserError(
            f"{shown(name)} is not the address of a model on huggingface.co",
            remedy="Give the page of a model, or its id such as mlx-community/Qwen3-4B-4bit.",
            code=ExitCode.MODEL,
        )
    model = "/".join(parts[:ID_PARTS])
    rest = parts[ID_PARTS:]
    if len(rest) > 1 and rest[0] in WITH_REVISION:
        return f"{model}@{rest[1]}"
    return model
