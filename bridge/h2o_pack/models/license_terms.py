"""What a model's files say of its license: the model card's front matter, and the texts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from h2o_pack.facts import FOLDER
from h2o_pack.files.toml import read_tables
from h2o_pack.models.files import CARD
from h2o_pack.naming import one_line

LARGEST = 1 << 20  # bytes
LONGEST = 200  # characters of an entry that are shown
FRONT_MATTER = re.compile(r"\A\s*---[ \t]*\n(.*?\n)---[ \t]*$", re.DOTALL | re.MULTILINE)
OTHER = ("other", "unknown")
ENTRY = re.compile(
    r"^(license(?:_name|_link)?):[ \t]*(?:\n[ \t]*-[ \t]*)?(\S.*)$", re.MULTILINE
)
CARRIED = ("apache-2.0",)
"""Ids of licenses whose text is the same for all, so that packages have it in any case."""
NONE = (
    "the model's files name no license: neither a LICENSE file nor `license` in README.md. "
    "Ask its makers before you ship it."
)
NO_TEXT = "Its text is not among the model's files: add it as LICENSE to a local copy of them."
FREE = (
    *("apache-2.0", "mit", "isc", "zlib", "bsd", "bsd-2-clause", "bsd-3-clause"),
    *("cc0-1.0", "unlicense", "wtfpl", "bsl-1.0", "cdla-permissive-2.0", "afl-3.0"),
)
"""Ids of licenses that ask for no more than their text in the app."""


@dataclass(frozen=True)
class Terms:
    """Licenses that ask something of an app; see licenses.toml.

    read: whether `asks` was written from the text itself, or else from summaries of it.
    """

    ids: tuple[str, ...]
    name: str
    asks: str
    source: str
    read: bool


@dataclass(frozen=True)
class TermsFile:
    """licenses.toml."""

    license: tuple[Terms, ...]


@dataclass(frozen=True)
class ModelLicense:
    """What is known of a model's license.

    id and link: as the model card has them, "" where it has none. texts: of license and
    notices, by their names in Model/.
    """

    id: str = ""
    link: str = ""
    texts: Mapping[str, str] = field(default_factory=dict)


@cache
def terms() -> Mapping[str, Terms]:
    """Return the licenses that ask something of an app, by the ids of model cards."""
    found = read_tables(FOLDER / "licenses.toml", TermsFile).license
    return {name: each for each in found for name in each.ids}


def read_license(files: Mapping[str, bytes]) -> ModelLicense:
    """Find the license of a model in its card and notices, {name: content}."""
    texts = {name: data.decode("utf-8", "replace") for name, data in sorted(files.items())}
    cards = [name for name in texts if name.lower() == CARD]
    card = front_matter(texts[cards[0]]) if cards else {}
    notices = {name: text for name, text in texts.items() if name not in cards}
    stated = card.get("license", "").lower()
    named = card.get("license_name", "")
    return ModelLicense(
        id=named if named and stated in ("", *OTHER) else stated,
        link=card.get("license_link", ""),
        texts=notices,
    )


def front_matter(card: str) -> dict[str, str]:
    """Return what a model card says of the license, of a list its first entry."""
    head = FRONT_MATTER.match(card.replace("\r\n", "\n"))
    if head is None:
        return {}
    found = {key: value.strip().strip("\"'[]") for key, value in ENTRY.findall(head[1])}
    return {key: one_line(value)[:LONGEST] for key, value in found.items()}


def remark(found: ModelLicense) -> str:
    """Say what a developer should know before shipping the model, "" for nothing."""
    if not found.id:
        return "" if found.texts else NONE
    name = found.id.lower()
    missing = "" if found.texts or name in CARRIED else NO_TEXT
    if name in terms():
        known = terms()[name]
        asks = f"It asks you to {known.asks}: {known.source}."
        return " ".join(filter(None, [f"the model's license is {known.name}.", asks, missing]))
    if name not in FREE:
        at = f" ({found.link})" if found.link else ""
        said = f"the model's license is {found.id}{at}: read it before you ship it."
        return " ".join(filter(None, [said, missing]))
    return f"the model's license is {found.id}. {missing}" if missing else ""
