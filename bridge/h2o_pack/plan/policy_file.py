"""Settings of a cache in a TOML file, for what few users change.

policy = "tuned"            # whose defaults hold for what is not stated
recent_budget = 96
pinned = [[0, 128]]
prefill_step = 256
budgets = "budgets.json"    # beside this file

[recall]                    # with this table, recall is on
every = 4
archive = "files"
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from h2o_pack.config_errors import OF_RECALL, user_errors
from h2o_pack.errors import ExitCode, nearest, shown
from h2o_pack.files.toml import Blame, load
from h2o_py.errors import H2OConfigError
from h2o_py.policy_fields import FIELDS, NAMED_POLICIES, Field
from h2o_py.policy_rules import check

SETTINGS = {field.name: field for field in FIELDS if not field.required}
"""Settings of a policy by name: all but the rows, which the command line gives."""
RECALL = {field.name: (option, field) for option, field in OF_RECALL.items()}
"""Settings of recall: the option of `CacheOptions`, and the field."""
ARCHIVES = ("memory", "files")
BESIDE = ("policy", "prefill_step", "budgets", "recall")
BLAME = Blame("`h2o-pack policy show standard` prints a file with every key.", ExitCode.USAGE)
TYPES = {"integer": "integer", "bytes": "integer", "number": "number"}


def read_policy(path: Path) -> dict[str, Any]:
    """Read a file; return fields of `CacheOptions` by their names.

    Raises:
        UserError: it is not TOML, or a key or a value is not one of a policy's.

    """
    document, _ = load(path, BLAME)
    refuse_unknown(document, (*SETTINGS, *BESIDE), path)
    found: dict[str, Any] = {
        "policy": one_of(document, "policy", [each.name for each in NAMED_POLICIES], path),
        "settings": {
            name: checked(field, document[name], path)
            for name, field in SETTINGS.items()
            if name in document
        },
    }
    if "prefill_step" in document:
        found["prefill_step"] = whole_number(document["prefill_step"], "prefill_step", path)
    if "budgets" in document:
        found["budgets"] = path.parent / str(document["budgets"])
    if "recall" in document:
        found |= read_recall(document["recall"], path)
    return {name: value for name, value in found.items() if value is not None}


def read_recall(table: Any, path: Path) -> dict[str, Any]:
    """Read the table of recall, which turns it on."""
    if not isinstance(table, dict):
        raise BLAME.error(f"recall should be a table, is {shown(table)}", path)
    refuse_unknown(table, (*RECALL, "archive"), path)
    found = {
        option: checked(field, table[name], path)
        for name, (option, field) in RECALL.items()
        if name in table
    }
    return {
        "recall": True,
        **found,
        "archive": one_of(table, "archive", ARCHIVES, path) or ARCHIVES[0],
    }


def refuse_unknown(table: Mapping[str, Any], known: Iterable[str], path: Path) -> None:
    """Refuse keys that a file does not have."""
    names = list(known)
    for name in table:
        if name not in names:
            raise BLAME.error(f"unknown key {shown(name)}", path, nearest(name, names))


def one_of(
    table: Mapping[str, Any], name: str, choices: Iterable[str], path: Path
) -> str | None:
    """Return one of several names; None where the table does not have it."""
    names = list(choices)
    value = table.get(name)
    if value is not None and value not in names:
        what = f"{name} = {shown(value)} is none of {', '.join(names)}"
        raise BLAME.error(what, path, nearest(str(value), names))
    return value


def whole_number(value: Any, name: str, path: Path) -> int:
    """Return a number of tokens."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    raise BLAME.error(f"{name} should be a number of tokens, is {shown(value)}", path)


def checked(field: Field, value: Any, path: Path) -> Any:
    """Return a setting's value, ranges as tuples; the cache checks what belongs together."""
    if field.type == "ranges" and isinstance(value, list):
        return tuple(tuple(each) if isinstance(each, list) else each for each in value)
    with user_errors():
        try:
            check(field, value)
        except H2OConfigError as error:
            error.where = str(path)
            raise
    return value


def schema() -> dict[str, Any]:
    """Return the JSON Schema of such a file."""
    recall = {name: field_schema(field) for name, (_, field) in RECALL.items()}
    recall["archive"] = {"enum": list(ARCHIVES), "description": "Where the archive is."}
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "policy": {"enum": [each.name for each in NAMED_POLICIES]},
            **{name: field_schema(field) for name, field in SETTINGS.items()},
            "prefill_step": {"type": "integer", "minimum": 1},
            "budgets": {"type": "string", "description": "File of `h2o-pack budgets`."},
            "recall": {
                "type": "object",
                "additionalProperties": False,
                "properties": recall,
            },
        },
    }


def field_schema(field: Field) -> dict[str, Any]:
    """Return the JSON Schema of one setting."""
    from h2o_py.policy_fields import SCORES

    found: dict[str, Any] = {"description": field.meaning}
    if field.type in TYPES:
        found["type"] = TYPES[field.type]
    if field.type == "ranges":
        pair = {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}
        found |= {"type": "array", "items": pair}
    if field.type == "score":
        found["enum"] = [score.name for score in SCORES]
    if field.choices:
        found["enum"] = list(field.choices)
    if field.least is not None:
        found["minimum"] = field.least
    if field.most is not None:
        found["maximum"] = field.most
    return found
