"""What devices reported, as facts: facts/proven.toml, which `prove --import` writes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from h2o_pack import facts
from h2o_pack.devices.facts import MeasuredMargin, Number, PublishedSpeed
from h2o_pack.files.toml import read_tables

NAME = "proven.toml"


@dataclass(frozen=True)
class ProvenFile:
    """proven.toml; all of it is measured, and `source` names the report."""

    number: tuple[Number, ...] = ()
    point: tuple[PublishedSpeed, ...] = ()
    margin: tuple[MeasuredMargin, ...] = ()


def path() -> Path:
    """Return where the file is once a report was imported."""
    return facts.FOLDER / NAME


def proven() -> ProvenFile:
    """Read the file; nothing was reported where there is none."""
    found = path()
    return read_tables(found, ProvenFile) if found.is_file() else ProvenFile()
