"""Fills the reference pages from code and facts, when the site is built.

A comment `<!-- generated: NAME -->` marks the place of each generated part in a page.
"""

from __future__ import annotations

import re

from docs.docgen import command_line, facts, policy, schemas, swift_api

MARK = re.compile(r"^<!-- generated: ([\w: ]+) -->$", re.MULTILINE)


def filled(text: str) -> str:
    """Return a page with the generated parts in the place of their marks.

    Raises:
        KeyError: a mark has an unknown name.

    """
    return MARK.sub(lambda match: generated(match[1]), text)


def generated(name: str) -> str:
    """Return the Markdown that a mark stands for."""
    if name.startswith("facts: "):
        return facts.tables(name.removeprefix("facts: "))
    return {
        "command line": command_line.sections,
        "json": schemas.sections,
        "policy": policy.sections,
        "swift": swift_api.sections,
    }[name]()
