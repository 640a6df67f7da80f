"""The documents that commands print with --json: their types, and the types' JSON Schemas.

A result is a frozen dataclass whose fields are the document's keys, in their order:

    @dataclass(frozen=True, kw_only=True)
    class FilesResult(Result): \"\"\"The files of a package.\"\"\"

        files: Annotated[tuple[str, ...], doc("Relative to the package.")]

`to_json` writes the fields, and `schema` is made of the fields and the docstrings.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import PurePath
from typing import Annotated, Any, Literal

import msgspec

from h2o_pack.errors import UserError
from h2o_pack.naming import readable

RESULTS = {
    "plan": (
        "h2o_pack.plan.device_fit.PlanResult",
        "h2o_pack.choice.choice.Choice",
    ),
    "chat": (
        "h2o_pack.chat.events.TextEvent",
        "h2o_pack.chat.events.ThoughtEvent",
        "h2o_pack.chat.events.UsageEvent",
        "h2o_pack.chat.events.NoteEvent",
        "h2o_pack.chat.events.ErrorEvent",
    ),
    "devices": ("h2o_pack.devices.catalogue.DevicesResult",),
    "models": (
        "h2o_pack.models.model_tables.CatalogueResult",
        "h2o_pack.models.model_tables.ModelResult",
    ),
    "bench": ("h2o_pack.measure.bench_result.BenchResult",),
    "eval": ("h2o_pack.measure.evaluation.evaluation_report.Evaluation",),
    "profile": (
        "h2o_pack.measure.profiling.profile_report.Profile",
        "h2o_pack.measure.profiling.rules.BudgetsResult",
    ),
    "ios": (
        "h2o_pack.package.package_result.IosResult",
        "h2o_pack.package.package_result.PackagesResult",
    ),
    "update": ("h2o_pack.package.update.UpdateResult",),
    "vendor": ("h2o_pack.package.package_result.VendorResult",),
    "verify": ("h2o_pack.verify.check.Verification",),
    "parity": ("h2o_pack.parity.parity_report.ParityReport",),
    "doctor": ("h2o_pack.doctor.finding.Checkup",),
    "error": ("h2o_pack.results.ErrorResult",),
}
"""The result types of each command, which prints one of them."""

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def doc(text: str) -> msgspec.Meta:
    """Return an annotation that describes the field of a result."""
    return msgspec.Meta(description=text)


Count = Annotated[int, msgspec.Meta(ge=0)]
"""A number of bytes, rows or tokens."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """The document that a command prints with --json."""

    format: Annotated[Literal[1], doc("Version of the document's format.")] = 1


@dataclass(frozen=True)
class ErrorEntry:
    """An error of a command."""

    code: Annotated[Count, doc("Exit code.")]
    what: Annotated[str, doc("What is wrong.")]
    where: Annotated[str | None, doc("File or place of the error; null if there is none.")]
    remedy: Annotated[str, doc("What to do.")]


@dataclass(frozen=True, kw_only=True)
class ErrorResult(Result):
    """The document of any command that fails; stderr shows the same text."""

    errors: Annotated[
        tuple[ErrorEntry, ...],
        doc("All errors; the first error gives the exit code."),
    ]


def error_entries(errors: Iterable[UserError]) -> tuple[ErrorEntry, ...]:
    """Return errors in the form of results."""
    return tuple(
        ErrorEntry(int(error.code), error.what, error.where, error.remedy) for error in errors
    )


def to_json(result: Result | Mapping[str, Any]) -> str:
    """Write a result as --json prints it; bytes of paths that are not UTF-8 become U+FFFD."""
    text = json.dumps(msgspec.to_builtins(result, enc_hook=str), ensure_ascii=False)
    return json.dumps(json.loads(readable(text)), indent=2)


def result_types(command: str) -> tuple[type[Result], ...]:
    """Return the types of a command's result."""
    places = (place.rpartition(".") for place in RESULTS[command])
    return tuple(getattr(import_module(module), name) for module, _, name in places)


def schema(command: str) -> dict[str, Any]:
    """Return the JSON Schema of the document that a command prints with --json."""
    roots, parts = msgspec.json.schema_components(
        result_types(command),
        schema_hook=schema_of_path,
        ref_template="#/$defs/{name}",
    )
    for part in parts.values():
        if "properties" in part:
            complete(part)
    from h2o_py.policy_fields import FIELDS  # a build has no h2o_py on its path

    for field in FIELDS if "H2OConfig" in parts else ():
        parts["H2OConfig"]["properties"][field.name]["description"] = field.meaning
    document: dict[str, Any] = {"anyOf": list(roots)}
    if len(roots) == 1:
        document = parts.pop(roots[0]["$ref"].rpartition("/")[2])
    title = f"h2o-pack {command} --json"
    return {"$schema": DIALECT, **document, "title": title, "$defs": parts}


def complete(part: dict[str, Any]) -> None:
    """Require all keys of a schema and forbid others; put `format` first."""
    keys = part["properties"]
    ordered = {key: keys[key] for key in sorted(keys, key=lambda key: key != "format")}
    required = set(part.get("required", ()))
    part["required"] = [key for key in ordered if key in required or "default" in keys[key]]
    part["properties"] = {
        key: {name: value for name, value in entry.items() if name != "default"}
        for key, entry in ordered.items()
    }
    part["additionalProperties"] = False


def schema_of_path(kind: type) -> dict[str, str]:
    """Return the schema of a path, which JSON contains as a string."""
    if issubclass(kind, PurePath):
        return {"type": "string"}
    raise NotImplementedError
