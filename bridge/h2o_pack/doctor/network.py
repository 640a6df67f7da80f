"""The Hugging Face hub: whether it answers, and whether there is a token for it."""

from __future__ import annotations

import json
from urllib.parse import urlsplit

from h2o_pack.doctor.finding import Finding, ok, problem, warning
from h2o_pack.doctor.places import hub_home
from h2o_pack.doctor.surroundings import Surroundings

HUB = "https://huggingface.co"
QUESTION = "/api/models?limit=1"
MOST = 1 << 20
TRUE = {"1", "on", "yes", "true"}
PROXY = "Check the network, HTTPS_PROXY and SSL_CERT_FILE, or set HF_ENDPOINT to a mirror."


def hub(machine: Surroundings) -> Finding:
    """Ask the hub for the name of one model, without a token."""
    name, endpoint = "hub", machine.environment.get("HF_ENDPOINT") or HUB
    if machine.environment.get("HF_HUB_OFFLINE", "").lower() in TRUE:
        remedy = "Unset it to download; models in the hub's cache still work."
        return warning(name, "HF_HUB_OFFLINE is set: nothing is downloaded", remedy)
    if not usable(endpoint):
        what = f"HF_ENDPOINT = {endpoint!r} is not an address"
        return problem(name, what, f"Unset it, or give one such as {HUB}.")
    endpoint = endpoint.rstrip("/")
    status, answer = ask(endpoint + QUESTION, machine.hub_seconds)
    if status is None:
        return warning(name, f"{endpoint} cannot be reached: {answer}", PROXY)
    if status != 200:  # noqa: PLR2004  HTTP's word for fine
        return warning(name, f"{endpoint} answers with status {status}", PROXY)
    try:
        named = isinstance(json.loads(answer), list)
    except (ValueError, RecursionError):
        named = False
    if not named:
        what = f"{endpoint} answers, but not as the hub does: a proxy's or login page"
        return warning(name, what, PROXY)
    return ok(name, f"{endpoint} answers")


def ask(address: str, seconds: float) -> tuple[int | None, str]:
    """Return status and body of an address, or None and why there is no answer."""
    from http.client import HTTPException
    from urllib.error import HTTPError, URLError
    from urllib.request import Request, urlopen

    request = Request(address, headers={"User-Agent": "h2o-pack doctor"})  # noqa: S310  usable()
    try:
        with urlopen(request, timeout=seconds) as response:  # noqa: S310
            return response.status, response.read(MOST).decode("utf-8", "replace")
    except HTTPError as error:
        with error:
            return error.code, ""
    except URLError as error:
        reason = error.reason
        return None, str(getattr(reason, "strerror", None) or reason)
    except (OSError, HTTPException, ValueError) as error:
        return None, str(error) or type(error).__name__


def usable(endpoint: str) -> bool:
    """Whether this is an address of HTTP."""
    try:
        parts = urlsplit(endpoint)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def token(machine: Surroundings) -> Finding:
    """Tell whether there is a token, and where; never what it is."""
    name = "hub token"
    for variable in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        if machine.environment.get(variable, "").strip():
            return ok(name, f"there is one in {variable}")
    given = machine.environment.get("HF_TOKEN_PATH")
    path = machine.folder(given) if given else hub_home(machine) / "token"
    try:
        if path.read_text("utf-8", errors="replace").strip():
            return ok(name, f"there is one in {path}")
    except FileNotFoundError:
        pass
    except OSError as error:
        what = f"{path} cannot be read: {error.strerror or error}"
        return warning(name, what, "Run: hf auth login")
    return ok(name, "there is none, which only gated and private models need (`hf auth login`)")
