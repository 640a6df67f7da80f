"""Random JSON Schemas of what guided output can be held to."""

from __future__ import annotations

import random
import string
from typing import Any

Schema = dict[str, Any]
DEEPEST = 3
WORDS = ("red", "green", "blue", 'a"b', "naïve", "", "line\nbreak", "日本", "true", "1")
PATTERNS = (
    "^[a-f]{2,4}$",
    "^\\d{3}-\\d{4}$",
    "^(yes|no|maybe)$",
    "^[A-Z][a-z]+( [A-Z][a-z]+)?$",
)


def random_schemas(seed: int, count: int) -> list[Schema]:
    """Return schemas that follow from the seed."""
    draw = random.Random(seed)  # noqa: S311 - repeatable, not secret
    return [whole(draw) for _ in range(count)]


def chance(draw: random.Random, share: float) -> bool:
    """Return True in a share of all cases."""
    return draw.random() < share


def whole(draw: random.Random) -> Schema:
    """Return a schema with a definition that some of its places refer to."""
    schema = value(draw, 0)
    if chance(draw, 0.2):
        return {
            "type": "object",
            "properties": {"value": schema, "item": {"$ref": "#/$defs/item"}},
            "required": ["value", "item"],
            "$defs": {"item": value(draw, 1)},
        }
    return schema


def value(draw: random.Random, depth: int) -> Schema:
    """Return the schema of one value: the outermost is no plain one, the innermost is."""
    if depth >= DEEPEST or (depth > 0 and chance(draw, 0.6)):
        return draw.choice([text, whole_number, number, listed, simple])(draw)
    return draw.choice([record, record, sequence, mapping, either, pair])(draw, depth)


def record(draw: random.Random, depth: int) -> Schema:
    """Return an object's schema with members of given names."""
    names = draw.sample(string.ascii_lowercase, draw.randint(1, 5 - depth))
    names = [name * draw.randint(1, 6) for name in names]
    schema: Schema = {
        "type": "object",
        "properties": {name: value(draw, depth + 1) for name in names},
        "required": [name for name in names if chance(draw, 0.6)],
    }
    if chance(draw, 0.3):
        schema["additionalProperties"] = chance(draw, 0.5)
    if chance(draw, 0.2):
        schema["minProperties"] = draw.randint(0, len(names))
    if chance(draw, 0.2):
        schema["maxProperties"] = draw.randint(max(1, len(schema["required"])), len(names))
        schema["minProperties"] = min(schema.get("minProperties", 0), schema["maxProperties"])
    return schema


def sequence(draw: random.Random, depth: int) -> Schema:
    """Return an array's schema."""
    least = draw.randint(0, 2)
    schema: Schema = {"type": "array", "items": value(draw, depth + 1), "minItems": least}
    if chance(draw, 0.7):
        schema["maxItems"] = least + draw.randint(0, 4)
    return schema


def pair(draw: random.Random, depth: int) -> Schema:
    """Return the schema of an array whose elements differ."""
    first = [value(draw, depth + 1) for _ in range(draw.randint(1, 2))]
    return {"type": "array", "prefixItems": first, "items": chance(draw, 0.2)}


def mapping(draw: random.Random, depth: int) -> Schema:
    """Return the schema of an object with any names."""
    schema: Schema = {"type": "object", "additionalProperties": value(draw, depth + 1)}
    if chance(draw, 0.5):
        schema["maxProperties"] = draw.randint(1, 3)
    return schema


def either(draw: random.Random, depth: int) -> Schema:
    """Return a choice."""
    if chance(draw, 0.3):
        return {"type": draw.sample(["string", "integer", "null", "boolean", "object"], 2)}
    return {"anyOf": [value(draw, depth + 1) for _ in range(draw.randint(2, 3))]}


def text(draw: random.Random) -> Schema:
    """Return a string's schema."""
    if chance(draw, 0.3):
        return {"type": "string"}
    if chance(draw, 0.3):
        return {"type": "string", "pattern": draw.choice(PATTERNS)}
    least = draw.randint(0, 6)
    schema: Schema = {"type": "string", "minLength": least}
    if chance(draw, 0.8):
        schema["maxLength"] = least + draw.randint(0, 20)
    return schema


def whole_number(draw: random.Random) -> Schema:
    """Return an integer's schema."""
    schema: Schema = {"type": "integer"}
    least = draw.randint(-2000, 2000)
    if chance(draw, 0.6):
        schema[draw.choice(["minimum", "exclusiveMinimum"])] = least
    if chance(draw, 0.6):
        schema[draw.choice(["maximum", "exclusiveMaximum"])] = least + draw.randint(2, 5000)
    return schema


def number(draw: random.Random) -> Schema:
    """Return a number's schema."""
    schema: Schema = {"type": "number"}
    least = round(draw.uniform(-50, 50), draw.randint(0, 3))
    if chance(draw, 0.6):
        schema[draw.choice(["minimum", "exclusiveMinimum"])] = least
    if chance(draw, 0.6):
        most = round(least + draw.uniform(0.5, 200), draw.randint(1, 3))
        schema[draw.choice(["maximum", "exclusiveMaximum"])] = most
    return schema


def listed(draw: random.Random) -> Schema:
    """Return the schema of one of some values."""
    values: list[Any] = [*WORDS, 0, -7, 2.5, 1e6, None, True, [1, "x"], {"k": [None]}]
    if chance(draw, 0.2):
        return {"const": draw.choice(values)}
    if chance(draw, 0.5):
        return {"type": "string", "enum": draw.sample(WORDS, draw.randint(1, 4))}
    return {"enum": draw.sample(values, draw.randint(1, 5))}


def simple(draw: random.Random) -> Schema:
    """Return the schema of a value with few forms."""
    return {"type": draw.choice(["boolean", "null"])}
