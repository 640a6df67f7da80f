"""The checks of the hub ask a server on loopback, and never show a token."""

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from huggingface_hub import constants

from h2o_pack.doctor import checks
from h2o_pack.doctor.checks import check_up
from h2o_pack.doctor.machine import Surroundings
from h2o_pack.results import to_json
from tests.messages import says

SECRET = "hf_verysecretverysecret"  # noqa: S105


@contextmanager
def hub(status=200, body=b"[]", *, answers=True):
    """A server that gives every request one answer, or none until the block ends."""
    requests, finished = [], threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            requests.append((self.path, dict(self.headers)))
            if not answers:
                finished.wait(60)
                return
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", requests
    finally:
        finished.set()
        server.shutdown()
        server.server_close()
        thread.join()


def seen(tmp_path, **environment):
    return Surroundings(
        environment={"HOME": str(tmp_path), "PATH": "", **environment}, hub_seconds=0.5
    )


@pytest.fixture(autouse=True)
def client(monkeypatch):
    """The settings of the hub's client, which it reads from the environment once."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)

    def set_to(**settings):
        for name, value in settings.items():
            monkeypatch.setattr(constants, name, value)

    return set_to


def test_a_hub_that_answers_is_fine_and_gets_no_token(tmp_path, client):
    with hub(body=b'[{"id": "a/b"}]') as (address, requests):
        client(ENDPOINT=address)
        finding = checks.hub(seen(tmp_path, HF_TOKEN=SECRET))
    assert (finding.status, finding.what) == ("ok", f"{address} answers")
    ((path, headers),) = requests
    assert path == "/api/models?limit=1"
    assert SECRET not in str(headers)


@pytest.mark.parametrize("status", [401, 404, 429, 503])
def test_a_hub_that_refuses_is_a_warning_with_its_status(tmp_path, client, status):
    with hub(status) as (address, _):
        client(ENDPOINT=address)
        finding = checks.hub(seen(tmp_path))
    assert finding.status == "warning"
    says(finding.what)
    assert "HF_ENDPOINT" in finding.remedy


@pytest.mark.parametrize("body", [b"<html>log in</html>", b"{}", b"\xff\x00", b"", b"[" * 9999])
def test_a_login_page_is_not_taken_for_the_hub(tmp_path, client, body):
    with hub(body=body) as (address, _):
        client(ENDPOINT=address)
        finding = checks.hub(seen(tmp_path))
    assert finding.status == "warning"
    says(finding.what)


def test_a_hub_that_is_silent_or_away_is_a_warning(tmp_path, client):
    with hub(answers=False) as (address, _):
        client(ENDPOINT=address)
        finding = checks.hub(seen(tmp_path))
        assert (finding.status, "cannot be reached: timed out" in finding.what) == (
            "warning",
            True,
        )
    finding = checks.hub(seen(tmp_path))
    assert finding.status == "warning"
    assert "Connection refused" in finding.what


@pytest.mark.parametrize(
    "endpoint",
    ["", "huggingface.co", "file:///etc/passwd", "http://", "http://[x", "http://a:b"],
)
def test_an_endpoint_that_is_no_address_is_a_problem(tmp_path, client, endpoint):
    client(ENDPOINT=endpoint)
    finding = checks.hub(seen(tmp_path))
    assert finding.status == "problem"
    says(finding.what)


def test_offline_mode_is_told_without_asking(tmp_path, client):
    with hub() as (address, requests):
        client(ENDPOINT=address, HF_HUB_OFFLINE=True)
        finding = checks.hub(seen(tmp_path))
    assert finding.status == "warning"
    assert "HF_HUB_OFFLINE" in finding.what
    assert requests == []


@pytest.mark.parametrize("variable", ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"])
def test_a_token_is_told_by_its_place_only(tmp_path, client, variable):
    client(HF_HUB_OFFLINE=True)
    surroundings = seen(tmp_path, **{variable: SECRET})
    finding = checks.token(surroundings)
    assert (finding.status, finding.what) == ("ok", f"{variable} contains a token")
    assert SECRET not in to_json(check_up(surroundings))


def test_a_token_in_a_file_is_told_by_the_files_path_only(tmp_path, client):
    path = tmp_path / "token"
    client(HF_TOKEN_PATH=str(path))
    assert checks.token(seen(tmp_path)).what.startswith("no token")
    path.write_text(SECRET)
    assert checks.token(seen(tmp_path)).what == f"{path} contains a token"
    path.write_text("\n")
    assert checks.token(seen(tmp_path)).what.startswith("no token")


def test_a_token_that_cannot_be_read_is_a_warning(tmp_path, client):
    client(HF_TOKEN_PATH=str(tmp_path))
    finding = checks.token(seen(tmp_path))
    assert (finding.status, finding.remedy) == ("warning", "Run: hf auth login")
