"""Messages that the page on troubleshooting quotes are those that commands print."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from h2o_pack.cli import main
from tests.docs.conftest import SOURCES

QUOTED = re.compile(r"^\| `([^`]+)` \|", re.MULTILINE)
COMMANDS = (
    "plan --model demo --max-kv 3",
    "plan --model demo --max-kv 50000",
    "ios --model demo --max-kv 64 --pin x",
    "plan --model Qwen3-4B-4bits",
)


@pytest.fixture(scope="module")
def printed() -> str:
    results = [CliRunner().invoke(main, command.split()) for command in COMMANDS]
    assert all(result.exit_code in (2, 3) for result in results)
    return "\n".join(result.output for result in results)


def test_quoted_messages_are_printed(printed):
    quoted = QUOTED.findall(SOURCES["troubleshooting.md"])
    assert len(quoted) == len(COMMANDS)
    for message in quoted:
        for part in message.split("..."):
            assert part.strip() in printed, message
