"""The schemas of what `--json` prints."""

from __future__ import annotations

from typing import Any

import jsonschema

from h2o_pack import results


def check(document: Any, name: str) -> Any:
    """Refuse a document that is not as its schema says; return it."""
    jsonschema.Draft202012Validator(results.schema(name)).validate(document)
    return document
