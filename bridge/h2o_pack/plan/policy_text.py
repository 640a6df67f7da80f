"""A named policy as the text of a policy file."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Annotated, Any

from h2o_pack.errors import ExitCode, UserError, nearest
from h2o_pack.plan.policy_file import RECALL, SETTINGS, schema
from h2o_pack.results import Result, doc
from h2o_py.policy_fields import NAMED_POLICIES, Field

WIDTH = 78


@dataclass(frozen=True, kw_only=True)
class PolicyResult(Result):
    """A named policy."""

    name: Annotated[str, doc("Of the policy.")]
    title: Annotated[str, doc("What it is.")]
    settings: Annotated[
        dict[str, Any], doc("Its settings; those that follow from the rows are left out.")
    ]
    text: Annotated[str, doc("A file that --policy takes, with every key.")]
    file_schema: Annotated[dict[str, Any], doc("JSON Schema of such a file.")]


def show(name: str) -> PolicyResult:
    """Return a named policy and a file that says the same.

    Raises:
        UserError: there is no such policy; names the nearest.

    """
    known = {each.name: each for each in NAMED_POLICIES}
    if name not in known:
        raise UserError(
            f'there is no policy "{name}"',
            remedy=f"{nearest(name, known)}Choose from: {', '.join(known)}.",
            code=ExitCode.USAGE,
        )
    policy = known[name]
    values = {key: policy.values.get(key, each.default) for key, each in SETTINGS.items()}
    settings = {
        key: value
        for key, value in values.items()
        if value is not None and key not in policy.formulas
    }
    lines = [f"# {policy.title}", f'policy = "{name}"']
    for key, field in SETTINGS.items():
        default = "the policy's, by the rows" if key in policy.formulas else ""
        lines += ["", *comment(field, default, follows=key not in settings)]
        lines.append(f"# {key} =" if key not in settings else f"{key} = {toml(settings[key])}")
    lines += ["", "# [recall]  # with this table, what is evicted comes back", ""]
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
    """Return what a setting means, and its default where that follows from others."""
    default = (default or field.default_meaning).replace("`", "")
    text = f"{field.meaning} Default: {default}." if follows and default else field.meaning
    return textwrap.wrap(text, WIDTH, initial_indent="# ", subsequent_indent="# ")


def toml(value: Any) -> str:
    """Write a value as TOML has it."""
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple):
        return f"[{', '.join(map(toml, value))}]"
    return str(value)
