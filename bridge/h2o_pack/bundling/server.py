"""The address of a server from which an app fetches its model."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from h2o_pack.errors import ExitCode, UserError

LOOPBACK = ("127.0.0.1", "::1", "localhost")
PLAIN = re.compile(r"[A-Za-z0-9._~:/%\[\]@!$&'()*+,;=-]+")
"""What a URL may consist of, but for a query and a fragment."""
REMEDY = "Give the folder's address, such as https://models.example.com/chat/1."


def check_server(url: str) -> str:
    """Return the address of the folder under which the model's files lie, without a last `/`.

    Raises:
        UserError: it is not https, has a user, a password, a query or a fragment, or is no
            address. http is for trials on this machine only.

    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise refused("is no address") from error
    if "@" in parts.netloc:
        raise refused("has a user or a password, which every app would contain")
    if parts.scheme != "https" and not (parts.scheme == "http" and host in LOOPBACK):
        raise refused("does not begin with https://, and iOS refuses anything else")
    if not host or not PLAIN.fullmatch(url):
        raise refused("is not the plain address of a folder, without a query or a fragment")
    return url.rstrip("/")


def refused(what: str) -> UserError:
    """Make the error for an address, which may contain a secret and is not repeated."""
    return UserError(f"--download {what}", remedy=REMEDY, code=ExitCode.USAGE)
