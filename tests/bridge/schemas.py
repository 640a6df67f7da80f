"""The schemas of what `--json` prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec

import h2o_pack
from h2o_pack import results

FOLDER = Path(h2o_pack.__file__).parent / "schemas"


def names() -> set[str]:
    """Return the names of all results."""
    return {*results.RESULTS, *(path.stem for path in FOLDER.glob("*.json"))}


def schema(name: str) -> Any:
    """Return the schema of a result."""
    if name in results.RESULTS:
        return results.schema(name)
    return json.loads((FOLDER / f"{name}.json").read_text("utf-8"))


def check(document: Any, name: str) -> Any:
    """Refuse a document, or a result's, that is not as its schema says; return it."""
    document = json.loads(msgspec.json.encode(document))
    jsonschema.Draft202012Validator(schema(name)).validate(document)
    return document
