"""Writes the table of what mlx-swift-lm's configurations read of a config.json.

    python -m tools.swift_configurations FOLDER

FOLDER contains a checkout of mlx-swift-lm. Run it after a change of the pinned version. The
program reads declarations and `decode` calls as text; `python -m tools.model_types` compares
the result with the compiled decoders.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from h2o_pack.files.text import json_by_lines
from h2o_pack.resolved.decoders import (
    COMMON,
    FACTORY,
    MODELS,
    closure,
    model_types,
    read,
    swift_files,
)
from h2o_pack.resolved.swift_source import (
    Declaration,
    closing,
    declarations,
    depth_by_character,
    line_end,
    without_text,
)
from h2o_pack.resolved.table import TABLE

KINDS = {
    "Int": "int", "Float": "float", "Bool": "bool", "String": "string",
    "[Int]": "ints", "[Float]": "floats", "[String]": "strings",
    "[String: StringOrNumber]": "mapping", "[String: String]": "mapping",
    "[String: [String: StringOrNumber]]": "mappings", "IntOrIntArray": "int or ints",
}  # fmt: skip
PROPERTY = re.compile(
    r"^ *(?:@\w+(?:\(\w*\))? +)*(?:(?:public|private|fileprivate|internal) +)*(?:let|var) +"
    r"(?P<name>\w+)(?: *: *(?P<type>[^={\n]+?))?(?: *= *(?P<value>[^{\n]+?))? *(?P<body>\{)?$",
    re.MULTILINE,
)
ENUM = re.compile(r"enum +(\w+) *: *String, *CodingKey *\{")
CASE = re.compile(r'case +(\w+)(?: *= *"([^"]+)")?')
DECODE = re.compile(
    r"(?P<may>try\? +)?(?P<container>\w+)\.(?P<call>decode|decodeIfPresent)\(\s*"
    r"(?P<type>[\w\[\]: ]+\??)\.self,\s*forKey:\s*(?:[\w.]*\.)?(?P<key>\w+)\s*\)"
)
OPTIONS = re.compile(r'StringOrNumber\.string\("(\w+)"\)|\.string\("(\w+)"\)')


def table(folder: Path) -> dict[str, Any]:
    """Return the table; see `h2o_pack.resolved.table`."""
    types = model_types(read(folder / FACTORY))
    texts = swift_files(folder)
    files = {path: list(declarations(text)) for path, text in texts.items()}
    names = sorted(set(types.values()))
    chosen = closure(files, names)
    entries = {}
    for path, found in chosen.items():
        for declaration in found:
            if (
                declaration.kind == "struct"
                and MODELS in path
                and "Coda" in declaration.conforms
            ):
                entries[declaration.name] = entry(declaration, path, files[path], texts, folder)
    return {
        "source": "mlx-swift-lm at " + commit(folder),
        "types": dict(sorted(types.items())),
        "decoders": dict(sorted(entries.items())),
    }


def commit(folder: Path) -> str:
    """Return the commit of a checkout."""
    command = ["git", "-C", str(folder), "rev-parse", "HEAD"]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout.strip()  # noqa: S603


def entry(
    declaration: Declaration,
    path: str,
    in_file: list[Declaration],
    texts: Mapping[str, str],
    folder: Path,
) -> dict[str, Any]:
    """Return the table's entry of a configuration."""
    text = declaration.text
    coding = coding_keys(text, in_file)
    properties = {match["name"]: match for match in stored_properties(text)}
    inside = re.search(r"nestedContainer\(keyedBy: CodingKeys\.self, forKey: \.(\w+)\)", text)
    keys: dict[str, dict[str, Any]] = {}
    inner: dict[str, str] = {}
    calls = list(DECODE.finditer(text))
    if "init(from decoder" in text:
        for call in calls:
            kind, name = call["type"], coding[call["key"]]
            if kind.endswith("Configuration"):
                inner[name] = kind
                continue
            key = key_of_call(call, text, properties)
            keys[name] = merged(keys.get(name), key)
        alone = {coding[c["key"]] for c in calls} - {
            coding[c["key"]] for c in calls if not c["may"]
        }
        for name in alone:  # each kind may fail, but not all of them
            keys[name]["required"] = True
    else:
        for name, match in properties.items():
            if name in coding:
                keys[coding[name]] = key_of_property(match)
    rope, rope_keys = ropes(texts[path], text, texts[str(folder / COMMON / "RoPEUtils.swift")])
    return {
        "file": Path(path).stem,
        **({"inside": coding[inside[1]]} if inside else {}),
        **({"inner": inner} if inner else {}),
        **({"rope": rope} if rope else {}),
        **({"rope_keys": rope_keys} if rope_keys else {}),
        "keys": keys,
    }


def coding_keys(text: str, in_file: list[Declaration]) -> dict[str, str]:
    """Return the keys of a configuration by the names of their cases."""
    used = set(re.findall(r"keyedBy: (?:\w+\.)?(\w+)\.self", text))
    others = (d.text for d in in_file if d.kind == "enum" and d.name in used)
    keys: dict[str, str] = {}
    for source in (text, *others):
        for match in ENUM.finditer(source):
            end = closing(without_text(source), match.end() - 1)
            cases = CASE.findall(source[match.end() : end])
            keys |= {case: key or case for case, key in cases if case not in keys}
    return keys


def stored_properties(text: str) -> Iterator[re.Match[str]]:
    """Yield a struct's properties that are not computed."""
    blank = without_text(text)
    depths = depth_by_character(blank)
    for match in PROPERTY.finditer(blank):
        if depths[match.start("name")] == 1 and not match["body"]:
            yield match


def key_of_property(match: re.Match[str]) -> dict[str, Any]:
    """Return a key that the compiler's own decoding reads.

    Such decoding requires each key whose property is not optional, whatever its initial value.
    """
    kind = (match["type"] or type_of(match["value"])).strip()
    required = not kind.endswith("?")
    return {"kind": kind_of(kind), **({"required": True} if required else {})}


def type_of(value: str) -> str:
    """Return the type of a literal."""
    if value in ("true", "false"):
        return "Bool"
    return "Float" if "." in value or "e" in value else "Int"


def kind_of(swift: str) -> str:
    """Return the table's name of a type."""
    plain = swift.strip().rstrip("?")
    return KINDS.get(plain, plain)


def key_of_call(
    call: re.Match[str], text: str, properties: Mapping[str, re.Match[str]]
) -> dict[str, Any]:
    """Return a key that a call decodes, with its default."""
    key: dict[str, Any] = {"kind": kind_of(call["type"])}
    if call["call"] == "decode":
        return {**key, **({} if call["may"] else {"required": True})}
    default = re.match(r"\s*\?\?\s*", text[call.end() :])
    if default:
        start = call.end() + default.end()
        blank = without_text(text)
        depths = depth_by_character(blank)
        base = depths[start]
        expression = text[start : line_end(blank, [d - base for d in depths], start)].strip()
        return {**key, **literal(expression)}
    own = properties.get(call["key"])
    if own is None or (own["type"] or "").rstrip().endswith("?"):
        return key
    if own["value"]:
        return {**key, **literal(own["value"].strip())}
    return {**key, "default_from": "other keys"}


def literal(expression: str) -> dict[str, Any]:
    """Return a default: a constant, or the expression that computes it."""
    text = {"true": "True", "false": "False", "nil": "None"}.get(expression, expression)
    try:
        value = ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return {"default_from": " ".join(expression.split())}
    return {} if value is None else {"default": value}


def merged(earlier: dict[str, Any] | None, key: dict[str, Any]) -> dict[str, Any]:
    """Return a key that several calls decode."""
    if earlier is None:
        return key
    kinds = dict.fromkeys((*earlier["kind"].split(" or "), *key["kind"].split(" or ")))
    both = {**earlier, **key, "kind": " or ".join(kinds)}
    if not (earlier.get("required") and key.get("required")):
        both.pop("required", None)
    return both


def ropes(file: str, struct: str, common: str) -> tuple[list[str], list[str]]:
    """Return the kinds of scaling that a model computes, and the keys that it reads itself.

    file: the model's file. struct: its configuration. common: RoPEUtils.swift.
    """
    body = file.replace(struct, "")
    passed = r"scalingConfig: (?:args|config)\.rope(?:Scaling|Parameters)|scalingConfig: ropeSc"
    if match := re.search(passed, body):
        cases = re.search(r"supportedRoPETypes[^(]*\(\[(.*?)\]\)", common, re.DOTALL)
        yarn = re.search(r"yarnTypes[^[]*\[([^\]]*)\]", common)
        assert cases is not None  # noqa: S101  another version may need another pattern
        assert yarn is not None  # noqa: S101
        kinds = re.findall(r'"([\w-]+)"', cases[1] + yarn[1])
        kinds.remove("default")
        if "maxPositionEmbeddings: nil" in body[match.start() : match.start() + 200]:
            kinds.remove("longrope")  # it would compute with another length
        options = {a or b for a, b in OPTIONS.findall(struct[struct.find("init(from") :])}
        if options and "DecodingError.dataCorruptedError" in struct and "ropeScaling" in struct:
            kinds = [kind for kind in kinds if kind in options]
        return kinds, []
    kinds = re.findall(r'opeScaling\.?(?:\["type"\]|type) == (?:\.string\()?"(\w+)"', body)
    kinds += re.findall(r'ropeScaling\.type == "(\w+)"', body)
    keys = re.findall(r'opeScaling\??\["(\w+)"\]', body)
    if "= YarnRoPE(" in body:
        kinds = ["yarn"]
    elif "DynamicNTKAlphaRoPE(" in body:
        kinds = ["alpha"]
    elif "= SuScaledRoPE(" in body and not kinds:
        kinds = ["longrope"]
    return list(dict.fromkeys(kinds)), list(dict.fromkeys(keys)) if kinds else []


if __name__ == "__main__":
    TABLE.write_text(json_by_lines(table(Path(sys.argv[1])), 4), "utf-8")
