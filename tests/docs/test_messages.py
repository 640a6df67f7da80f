"""Messages that the page on troubleshooting quotes are those that commands print."""

from __future__ import annotations

import re

from tests.docs.conftest import ROOT, SOURCES

QUOTED = re.compile(r"^\| `([^`]+)` \|", re.MULTILINE)


def test_quoted_messages_are_printed():
    printed = (ROOT / "tests/golden/pages/refusals.txt").read_text("utf-8")
    quoted = QUOTED.findall(SOURCES["troubleshooting.md"])
    assert len(quoted) >= 4
    for message in quoted:
        for part in message.split("..."):
            assert part.strip() in printed, message
