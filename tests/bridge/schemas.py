"""The schemas of what `--json` prints."""

import json
from typing import Any

import jsonschema

from h2o_pack import results


def check(document: Any, name: str) -> Any:
    """Refuse a document, or a result's, that is not as its schema says; return it."""
    if isinstance(document, results.Result):
        document = json.loads(results.to_json(document))
    jsonschema.Draft202012Validator(results.schema(name)).validate(document)
    return document
