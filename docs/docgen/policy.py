"""Makes the reference of a cache's settings, policies, storages and errors from interface/."""

from __future__ import annotations

from docs.docgen.markdown import code, plain, table
from interface.source import Field, Policy, Source


def sections() -> str:
    """Return the Markdown of the definitions in interface/."""
    from interface.source import read  # imported late: it needs msgspec

    source = read()
    settings, of_recall = (
        [
            (code(field.name), kind(field), default(field), plain(field.meaning))
            for field in fields
        ]
        for fields in (source.fields, source.recall_fields)
    )
    scores = [(code(score.name), plain(score.meaning)) for score in source.policy.score]
    policies = [
        (code(policy.name), plain(policy.title), changes(policy))
        for policy in source.policy.policy
    ]
    parts = [
        "## Settings",
        table(("setting", "type", "default", "meaning"), settings),
        "## Settings of recall",
        f"{plain(source.policy.recall.meaning)} They are in the configuration's `recall`.",
        table(("setting", "type", "default", "meaning"), of_recall),
        "## Scores",
        table(("score", "meaning"), scores),
        "## Named policies",
        table(("policy", "meaning", "changed defaults"), policies),
        "## Storages",
        table(("storage", "keys", "values", "recent tokens", "meaning"), storages(source)),
        "## Errors and warnings",
        table(("code", "meaning"), cases(source)),
    ]
    return "\n\n".join(parts)


def kind(field: Field) -> str:
    """Name a setting's type and range."""
    if field.choices:
        return f"{field.type}, one of {', '.join(str(choice) for choice in field.choices)}"
    if field.least is None:
        return field.type
    return f"{field.type}, at least {field.least}"


def default(field: Field) -> str:
    """Write a setting's default."""
    if field.required:
        return "none: the setting is required"
    return plain(field.default_meaning) or (
        "none" if field.default is None else f"{field.default}"
    )


def changes(policy: Policy) -> str:
    """Write which defaults a policy changes."""
    changed = policy.values.items()
    return ", ".join(f"{code(name)}: {code(str(value))}" for name, value in changed)


def storages(source: Source) -> list[tuple[str, ...]]:
    """Write each way to store rows with its bits."""
    return [
        (
            code(storage.name),
            str(storage.key),
            str(storage.value),
            str(storage.recent or "-"),
            storage.meaning,
        )
        for storage in source.storages.storage
    ]


def cases(source: Source) -> list[tuple[str, str]]:
    """Write each error and warning of a configuration."""
    messages = [*source.errors.error, *source.errors.warning]
    return [(code(message.code), plain(message.meaning)) for message in messages]
