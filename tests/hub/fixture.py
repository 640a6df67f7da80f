"""The fixture `hub`: a loopback hub that this process's client, and subprocesses, talk to.

The client reads its settings when it is imported, so in this process its constants are
set; a subprocess gets them by its environment, see `HubClient.environment`.
"""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.hub.server import HubServer


@dataclass
class HubClient:
    """The settings under which a client uses a HubServer, its cache below `home`.

    waits: what the client would have slept in this process, in seconds; it does not sleep.
    """

    server: HubServer
    home: Path
    waits: list[float]

    @property
    def cache(self) -> Path:
        """The folder with `models--owner--name`."""
        return self.home / "hub"

    @property
    def settings(self) -> dict[str, str]:
        """The environment variables that make huggingface_hub use this hub only."""
        return {
            "HF_ENDPOINT": self.server.url,
            "HF_HOME": str(self.home),
            "HF_HUB_CACHE": str(self.cache),
            "H2O_PACK_CACHE": str(self.home / "h2o-pack"),
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "HF_HUB_DISABLE_UPDATE_CHECK": "1",
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_ETAG_TIMEOUT": "10",
            "HF_HUB_DOWNLOAD_TIMEOUT": "10",
            "NO_PROXY": "127.0.0.1,localhost",
            # Has no certificates: the hub speaks HTTP, and reading the usual ones takes long.
            "SSL_CERT_DIR": str(self.home),
        }

    def environment(self, **more: str) -> dict[str, str]:
        """Return the environment for a subprocess."""
        unset = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
        variables = {name: value for name, value in os.environ.items() if name not in unset}
        return {**variables, **self.settings, **more}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """Start a hub without repositories; `hub.client` has the client's side."""
    server = HubServer()
    client = HubClient(server, tmp_path / "huggingface", [])
    server.client = client
    use(client, monkeypatch)
    yield server
    server.close()
    from huggingface_hub.utils import close_session

    close_session()


def use(client: HubClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Point this process's client, imported or not, at the hub."""
    for name, value in client.settings.items():
        monkeypatch.setenv(name, value)
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)

    import huggingface_hub.file_download
    import huggingface_hub.utils._http
    from huggingface_hub import constants, hf_api
    from huggingface_hub.utils import close_session

    import h2o_pack.hub.client

    url = client.server.url
    values = {
        "ENDPOINT": url,
        "HUGGINGFACE_CO_URL_TEMPLATE": url + "/{repo_id}/resolve/{revision}/{filename}",
        "HF_HOME": str(client.home),
        "HF_HUB_CACHE": str(client.cache),
        "HF_TOKEN_PATH": str(client.home / "token"),
        "HF_STORED_TOKENS_PATH": str(client.home / "stored_tokens"),
        "HF_HUB_OFFLINE": False,
        "HF_HUB_DISABLE_XET": True,
        "HF_HUB_DISABLE_TELEMETRY": True,
        "HF_HUB_DISABLE_PROGRESS_BARS": True,
        "AGENT_HARNESSES_PATH": str(client.home / "agent_harnesses.json"),
    }
    for name, value in values.items():
        monkeypatch.setattr(constants, name, value, raising=False)
    monkeypatch.setattr(hf_api.api, "endpoint", url)
    clock = SimpleNamespace(sleep=client.waits.append, time=time.time, monotonic=time.monotonic)
    for module in (
        huggingface_hub.file_download, huggingface_hub.utils._http, h2o_pack.hub.client
    ):  # fmt: skip
        monkeypatch.setattr(module, "time", clock)
    close_session()
