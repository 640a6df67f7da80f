"""The check of the hub asks a server on loopback, without a token."""

import pytest
from huggingface_hub import constants

from h2o_pack.doctor import checks
from h2o_pack.doctor.machine import Surroundings
from tests.hub import faults
from tests.hub.repository import Content
from tests.messages import says

SECRET = "hf_verysecretverysecret"  # noqa: S105
LISTING = "/api/models"


def seen(**environment):
    return Surroundings(environment={"PATH": "", **environment}, hub_seconds=0.5)


def test_a_hub_that_answers_is_fine_and_gets_no_token(hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", SECRET)
    finding = checks.hub(seen())
    assert (finding.status, finding.what) == ("ok", f"{hub.url} answers")
    [request] = hub.requests
    assert (request.path, request.authorization) == (LISTING, "")


@pytest.mark.parametrize("status", [401, 404, 429, 503])
def test_a_hub_that_refuses_is_a_warning_with_its_status(hub, status):
    hub.fail(LISTING, faults.Status(status))
    finding = checks.hub(seen())
    assert finding.status == "warning"
    says(finding.what)
    assert "HF_ENDPOINT" in finding.remedy


@pytest.mark.parametrize("body", [b"<html>log in</html>", b"{}", b"\xff\x00", b"", b"[" * 9999])
def test_a_login_page_is_not_taken_for_the_hub(hub, body):
    hub.fail(LISTING, faults.Instead(Content(body)))
    finding = checks.hub(seen())
    assert finding.status == "warning"
    says(finding.what)


def test_a_hub_that_is_silent_or_away_is_a_warning(hub, monkeypatch):
    hub.fail(LISTING, faults.Hold())
    finding = checks.hub(seen())
    assert finding.status == "warning"
    assert "cannot be reached: timed out" in finding.what
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # where nobody listens
    finding = checks.hub(seen())
    assert finding.status == "warning"
    assert "Connection refused" in finding.what


@pytest.mark.parametrize(
    "endpoint",
    ["", "huggingface.co", "file:///etc/passwd", "http://", "http://[x", "http://a:b"],
)
def test_an_endpoint_that_is_no_address_is_a_problem(hub, monkeypatch, endpoint):
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    finding = checks.hub(seen())
    assert finding.status == "problem"
    says(finding.what)


def test_offline_mode_is_told_without_asking(hub, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    finding = checks.hub(seen())
    assert finding.status == "warning"
    assert "HF_HUB_OFFLINE" in finding.what
    assert hub.requests == []
