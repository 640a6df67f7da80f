"""Reads a cache's settings from a TOML file.

policy = "tuned"            # its defaults apply to all settings that are not in this file
recent_budget = 96
pinned = [[0, 128]]
prefill_step = 256
budgets = "budgets.json"    # relative to this file

[recall]                    # this table turns recall on
every = 4
archive = "files"
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from h2o_pack.config_errors import OF_RECALL, user_errors
from h2o_pack.errors import ExitCode, nearest, shown, usage_error
from h2o_pack.files.toml import Blame, line_of, load
from h2o_pack.results import Result, doc
from h2o_py.config import check
from h2o_py.errors import H2OConfigError
from h2o_py.policy_fields import FIELDS, NAMED_POLICIES, Field

SETTINGS = {field.name: field for field in FIELDS if not field.required}
"""Settings of a policy by name, except the number of rows, for which `--max-kv` exists."""
RECALL = {field.name: (option, field) for option, field in OF_RECALL.items()}
"""Settings of recall by name: the field of `CacheSpec`, and the setting's description."""
ARCHIVES = ("memory", "files")
OTHER_KEYS = ("policy", "prefill_step", "budgets", "recall")
BLAME = Blame("`h2o-pack policy show standard` prints a file with every key.", ExitCode.USAGE)
WIDTH = 78
TYPES = {"integer": "integer", "bytes": "integer", "number": "number"}


def read_policy(path: Path) -> dict[str, Any]:
    """Read a file of settings; return fields of `CacheSpec` by their names.

    Raises UserError: the file is not TOML, or it has an unknown key or an invalid value.
    """
    document, text = load(path, BLAME)
    refuse_unknown(document, (*SETTINGS, *OTHER_KEYS), path, text)
    if isinstance(document.get("recall"), dict):
        refuse_unknown(document["recall"], (*RECALL, "archive"), path, text)
    fields: dict[str, Any] = {
        "policy": one_of(document, "policy", [policy.name for policy in NAMED_POLICIES], path),
        "settings": {
            name: checked(field, document[name], path)
            for name, field in SETTINGS.items()
            if name in document
        },
    }
    if "prefill_step" in document:
        fields["prefill_step"] = whole_number(document["prefill_step"], "prefill_step", path)
    if "budgets" in document:
        fields["budgets"] = path.parent / str(document["budgets"])
    if "recall" in document:
        fields |= read_recall(document["recall"], path)
    return {name: value for name, value in fields.items() if value is not None}


def read_recall(table: Any, path: Path) -> dict[str, Any]:
    """Read the [recall] table, whose presence turns recall on."""
    if not isinstance(table, dict):
        raise BLAME.error(f"recall must be a table, but is {shown(table)}", path)
    fields = {
        option: checked(field, table[name], path)
        for name, (option, field) in RECALL.items()
        if name in table
    }
    return {
        "recall": True,
        **fields,
        "archive": one_of(table, "archive", ARCHIVES, path) or ARCHIVES[0],
    }


def refuse_unknown(
    table: Mapping[str, Any], keys: Iterable[str], path: Path, text: str
) -> None:
    """Raise UserError for a key of a table that is not in `keys`."""
    names = list(keys)
    for name in table:
        if name not in names:
            where = f"{path}:{line_of(text, name)}"
            raise BLAME.error(f"unknown key {shown(name)}", where, nearest(name, names))


def one_of(
    table: Mapping[str, Any], name: str, choices: Iterable[str], path: Path
) -> str | None:
    """Return a key's value, one of `choices`; None if the table lacks the key."""
    names = list(choices)
    value = table.get(name)
    if value is not None and value not in names:
        what = f"{name} = {shown(value)} is not one of {', '.join(names)}"
        raise BLAME.error(what, path, nearest(str(value), names))
    return value


def whole_number(value: Any, name: str, path: Path) -> int:
    """Return a value if it is a positive integer; UserError otherwise."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    raise BLAME.error(f"{name} must be a number of tokens, but is {shown(value)}", path)


def checked(field: Field, value: Any, path: Path) -> Any:
    """Return a setting's value, with ranges as tuples; UserError if it is invalid.

    The configuration of the cache later checks ranges and settings that depend on each other.
    """
    if field.type == "ranges" and isinstance(value, list):
        return tuple(tuple(pair) if isinstance(pair, list) else pair for pair in value)
    with user_errors():
        try:
            check(field, value)
        except H2OConfigError as error:
            error.where = str(path)
            raise
    return value


def schema() -> dict[str, Any]:
    """Return the JSON Schema of a file of settings."""
    recall = {name: field_schema(field) for name, (_, field) in RECALL.items()}
    recall["archive"] = {"enum": list(ARCHIVES), "description": "Where the archive is kept."}
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "policy": {"enum": [policy.name for policy in NAMED_POLICIES]},
            **{name: field_schema(field) for name, field in SETTINGS.items()},
            "prefill_step": {"type": "integer", "minimum": 1},
            "budgets": {"type": "string", "description": "File that `h2o-pack budgets` wrote."},
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

    keywords: dict[str, Any] = {"description": field.meaning}
    if field.type in TYPES:
        keywords["type"] = TYPES[field.type]
    if field.type == "ranges":
        pair = {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}
        keywords |= {"type": "array", "items": pair}
    if field.type == "score":
        keywords["enum"] = [score.name for score in SCORES]
    if field.choices:
        keywords["enum"] = list(field.choices)
    if field.least is not None:
        keywords["minimum"] = field.least
    if field.most is not None:
        keywords["maximum"] = field.most
    return keywords


@dataclass(frozen=True, kw_only=True)
class PolicyResult(Result):
    """The settings of a named policy."""

    name: Annotated[str, doc("Name of the policy.")]
    title: Annotated[str, doc("Title of the policy.")]
    settings: Annotated[
        dict[str, Any],
        doc("Settings of the policy that do not depend on the number of rows."),
    ]
    text: Annotated[str, doc("File for --policy with every key.")]
    file_schema: Annotated[dict[str, Any], doc("JSON Schema of such a file.")]


def show(name: str) -> PolicyResult:
    """Return a named policy, and a file with its settings.

    Raises UserError, which offers the nearest name: there is no such policy.
    """
    by_name = {policy.name: policy for policy in NAMED_POLICIES}
    if name not in by_name:
        raise usage_error(
            f'there is no policy "{name}"',
            f"{nearest(name, by_name)}Choose from: {', '.join(by_name)}.",
        )
    policy = by_name[name]
    values = {key: policy.values.get(key, field.default) for key, field in SETTINGS.items()}
    settings = {
        key: value
        for key, value in values.items()
        if value is not None and key not in policy.by_rows
    }
    lines = [f"# {policy.title}", f'policy = "{name}"']
    for key, field in SETTINGS.items():
        default = "set by the policy, depending on the rows" if key in policy.by_rows else ""
        lines += ["", *comment(field, default, follows=key not in settings)]
        lines.append(f"# {key} =" if key not in settings else f"{key} = {toml(settings[key])}")
    lines += ["", "# [recall]  # this table turns recall on: evicted tokens can come back", ""]
    for key, (_, field) in RECALL.items():
        lines += comment(field, follows=field.default is None)
        lines.append(f"# {key} = {'' if field.default is None else toml(field.default)}")
    return PolicyResult(
        name=name,
        title=policy.title,
        settings=settings,
        text="\n".join(line.rstrip() for line in lines) + "\n",
        file_schema=schema(),
    )


def comment(field: Field, default: str = "", *, follows: bool) -> list[str]:
    """Return a setting's meaning as lines of a comment.

    follows: whether its default depends on other settings; the comment then explains it.
    """
    default = (default or field.default_meaning).replace("`", "")
    text = f"{field.meaning} Default: {default}." if follows and default else field.meaning
    return textwrap.wrap(text, WIDTH, initial_indent="# ", subsequent_indent="# ")


def toml(value: Any) -> str:
    """Write a value in TOML."""
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple):
        return f"[{', '.join(map(toml, value))}]"
    return str(value)
