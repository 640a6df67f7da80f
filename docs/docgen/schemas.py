"""Makes the reference of the JSON that commands print, from the types of their results.

`python -m docs.docgen.schemas` writes the JSON schemas to docs/reference/schemas.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from docs.docgen.markdown import code, plain, table

FOLDER = Path(__file__).resolve().parents[1] / "reference/schemas"


def schemas() -> dict[str, dict[str, Any]]:
    """Return {name: schema} of the documents."""
    from h2o_pack import results  # imported late: other pages do not need the package

    return {name: results.schema(name) for name in sorted(results.RESULTS)}


def sections() -> str:
    """Return the Markdown of all documents: their keys, types and meanings."""
    return "\n\n".join(section(name, schema) for name, schema in schemas().items())


def files() -> dict[str, str]:
    """Return {file name: text} of the schemas."""
    return {
        f"{name}.json": f"{json.dumps(schema, indent=2)}\n"
        for name, schema in schemas().items()
    }


def section(name: str, schema: Mapping[str, Any]) -> str:
    """Return the Markdown of one document."""
    rows = [
        (
            code(path),
            f"{kind(member, schema)}{'' if required else ', optional'}",
            plain(member.get("description", "")),
        )
        for path, member, required in members(schema, schema)
    ]
    parts = [
        f"## {name}",
        plain(schema.get("description", schema.get("title", ""))),
        f"The schema: [{name}.json](schemas/{name}.json).",
        table(["key", "type", "meaning"], rows) if rows else "",
    ]
    return "\n\n".join(part for part in parts if part)


def members(
    schema: Mapping[str, Any], root: Mapping[str, Any], path: str = ""
) -> Iterator[tuple[str, Mapping[str, Any], bool]]:
    """Yield the path, the schema and whether it is required, of all keys below a schema."""
    schema = resolved(schema, root)
    required = schema.get("required", ())
    for name, entry in schema.get("properties", {}).items():
        member = resolved(entry, root)
        place = f"{path}.{name}" if path else name
        yield place, member, name in required
        yield from members(member, root, place)
    for key, mark in (("items", "[]"), ("additionalProperties", ".*")):
        if isinstance(schema.get(key), dict):
            yield from members(schema[key], root, path + mark)
    for choice in (*schema.get("oneOf", ()), *schema.get("anyOf", ())):
        yield from members(choice, root, path)


def resolved(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follow a reference inside the document; keys next to the reference win."""
    reference = schema.get("$ref", "")
    if not reference.startswith("#/"):
        return schema
    target: Any = root
    for part in reference.removeprefix("#/").split("/"):
        target = target[part]
    return {**target, **{key: value for key, value in schema.items() if key != "$ref"}}


def kind(schema: Mapping[str, Any], root: Mapping[str, Any]) -> str:
    """Name the type of a value."""
    if "const" in schema:
        return code(json.dumps(schema["const"]))
    if "enum" in schema:
        return ", ".join(code(json.dumps(value)) for value in schema["enum"])
    choices = [*schema.get("oneOf", ()), *schema.get("anyOf", ())]
    if choices:
        return " or ".join(dict.fromkeys(kind(resolved(e, root), root) for e in choices))
    stated = schema.get("type", "any")
    names = stated if isinstance(stated, list) else [stated]
    words = []
    for name in names:
        if name == "array" and isinstance(schema.get("items"), dict):
            name = f"array of {kind(resolved(schema['items'], root), root)}"  # noqa: PLW2901
        words.append(name)
    return " or ".join(words)


def main() -> None:
    """Write the schemas."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    for name, text in files().items():
        (FOLDER / name).write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
