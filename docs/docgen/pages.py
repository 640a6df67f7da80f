"""Which pages are generated, and by what."""

from __future__ import annotations

from docs.docgen import command_line, facts, python_api, schemas, swift_api


def generated() -> dict[str, str]:
    """Return {path below docs: text} of every page and file made when the site is built."""
    return {
        "reference/command-line.md": command_line.page(),
        "reference/python.md": python_api.page(),
        "reference/swift.md": swift_api.page(),
        "reference/facts.md": facts.page(),
        **schemas.pages(),
    }
