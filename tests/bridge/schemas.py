"""The schemas of what `--json` prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema

import h2o_pack

FOLDER = Path(h2o_pack.__file__).parent / "schemas"


def check(document: Any, name: str) -> Any:
    """Refuse a document that is not as schemas/NAME.json says; return it."""
    schema = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(document)
    return document
