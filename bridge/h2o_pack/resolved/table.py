"""What mlx-swift-lm's decoders read of a config.json.

facts/swift_configurations.json holds the table; tools.swift_configurations writes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from h2o_pack.facts import FOLDER

TABLE = FOLDER / "swift_configurations.json"


@dataclass(frozen=True)
class Key:
    """A key that a decoder reads.

    kind: "int", "float", "bool", "string", lists of these ("ints"), "mapping" (texts, numbers,
    booleans and lists of numbers by name), "mappings" (mappings by name), or another decoder;
    several kinds are separated by " or ". required: whether decoding fails without the key.
    default: the value without the key; None if it has none, or if `default_from`, an
    expression in Swift, gives it.
    """

    kind: str
    required: bool = False
    default: Any = None
    default_from: str = ""

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of value that the decoder accepts."""
        return tuple(self.kind.split(" or "))

    @property
    def has_constant_default(self) -> bool:
        """Whether the value without the key depends on no other value."""
        return not self.required and not self.default_from


@dataclass(frozen=True)
class Decoder:
    """A configuration of mlx-swift-lm.

    file: its file below Libraries/MLXLLM/Models, without ".swift". keys: what it reads. inside:
    the object of config.json that it reads instead of the whole, if there is one. inner: the
    decoders of objects, by key. rope: the kinds of scaled rotary embeddings that the model
    computes; it ignores or refuses any other, except "default". rope_keys: the keys of the
    scaling that the model reads, if it does not pass all to MLXLMCommon.
    """

    name: str
    file: str
    keys: Mapping[str, Key]
    inside: str = ""
    inner: Mapping[str, Decoder] = field(default_factory=dict)
    rope: tuple[str, ...] = ()
    rope_keys: tuple[str, ...] = ()

    def read(self, document: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the object that the decoder reads of a config.json."""
        nested = document.get(self.inside) if self.inside else None
        return nested if isinstance(nested, dict) else document


@cache
def table() -> dict[str, Any]:
    """Return the content of the table's file."""
    content: dict[str, Any] = json.loads(TABLE.read_bytes())
    return content


@cache
def decoder(name: str) -> Decoder:
    """Return a decoder by the name of its type in Swift."""
    values = table()["decoders"][name]
    return Decoder(
        name=name,
        file=values["file"],
        keys={key: Key(**value) for key, value in values["keys"].items()},
        inside=values.get("inside", ""),
        inner={key: decoder(inner) for key, inner in values.get("inner", {}).items()},
        rope=tuple(values.get("rope", ())),
        rope_keys=tuple(values.get("rope_keys", ())),
    )


def decoder_of(model_type: str) -> Decoder | None:
    """Return the decoder of a model type; None if mlx-swift-lm has no such model."""
    name = table()["types"].get(model_type)
    return None if name is None else decoder(name)
