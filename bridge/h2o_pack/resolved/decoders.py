"""Cuts the configuration decoders out of mlx-swift-lm, so that they compile without MLX.

`parity --level text` compiles them with its own program:

    sources = decoder_sources(package / "Vendor/mlx-swift-lm")
    # {"LlamaConfiguration.swift": "...", ..., "DecodeConfiguration.swift": "..."}

The last of these files declares the one function that a program calls:

    func decodeConfiguration(_ data: Data) throws -> Data

It takes the content of a config.json, decodes it exactly as the app does (JSON5, the decoder of
its model type, that decoder's own checks, and `BaseConfiguration`), and returns JSON of
`{"configuration": {...}, "base": {...}}` with the values that the app computes with, under the
keys of config.json. It throws the app's own error for a config.json that the app cannot read.
`differences` then compares the result with the values in a resolved config.json.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from h2o_pack.errors import shown, tool_error
from h2o_pack.files.text import read_text
from h2o_pack.resolved.swift_source import Declaration, declarations, without_text
from h2o_pack.resolved.table import Decoder, decoder_of

MODELS = "Libraries/MLXLLM/Models"
FACTORY = "Libraries/MLXLLM/LLMModelFactory.swift"
COMMON = "Libraries/MLXLMCommon"
SHARED = (
    "BaseConfiguration.swift",
    "JSONDecodingTypes.swift",
    "ModelFactory.swift",
    "RoPEUtils.swift",
    "Extensions/JSONDecoder+JSON5.swift",
)
"""Files of MLXLMCommon with declarations that decoders need."""
NEEDED = ("BaseConfiguration", "JSONDecoder", "ModelConfigurationValidating")
CUTTABLE = ("struct", "enum", "protocol", "func", "let")
CREATOR = re.compile(r'"([\w.-]+)"\s*:\s*(?:create\(\s*(\w+)\.self|(create\w+))')
GET_UPSTREAM = "Give the folder of an mlx-swift-lm that this version of h2o-pack supports."

DECODE = """\
import Foundation

/// Replaces MLX's type of the same name, of which decoding needs only the names.
public enum QuantizationMode: String, Codable, Sendable {
    case affine, mxfp4, mxfp8, nvfp4
}

private struct Decoded<Configuration: Encodable>: Encodable {
    let configuration: Configuration
    let base: BaseConfiguration
}

private func decoded<Configuration: Codable>(
    _ type: Configuration.Type, _ data: Data, _ base: BaseConfiguration
) throws -> Data {
    let configuration = try JSONDecoder.json5().decode(type, from: data)
    if let validating = configuration as? ModelConfigurationValidating {
        try validating.validateModelConfiguration()
    }
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.sortedKeys]
    encoder.nonConformingFloatEncodingStrategy = .convertToString(
        positiveInfinity: "Infinity", negativeInfinity: "-Infinity", nan: "NaN")
    return try encoder.encode(Decoded(configuration: configuration, base: base))
}

/// Decodes the content of a config.json as the app does.
public func decodeConfiguration(_ data: Data) throws -> Data {
    let base = try JSONDecoder.json5().decode(BaseConfiguration.self, from: data)
    switch base.modelType {
%s
    default: throw ModelFactoryError.unsupportedModelType(base.modelType)
    }
}
"""


def decoder_sources(folder: Path) -> dict[str, str]:
    """Return Swift files with the decoders of all model types, by file name.

    folder: contains the sources of mlx-swift-lm (`Libraries/MLXLLM` and so on). Raises
    UserError: a file or a decoder is missing, by name.
    """
    types = model_types(read(folder / FACTORY))
    files = {path: list(declarations(text)) for path, text in swift_files(folder).items()}
    structs = {
        declaration.name: path
        for path, found in files.items()
        for declaration in found
        if declaration.kind == "struct"
    }
    for model_type, name in types.items():
        if name not in structs:
            raise missing(folder, f'{name}, the configuration of model type "{model_type}"')
    for name in NEEDED:
        if not any(d.name == name for found in files.values() for d in found):
            raise missing(folder, name)
    chosen = closure(files, (*sorted(set(types.values())), *NEEDED))
    sources = {
        Path(path).name: "import Foundation\n\n" + "\n\n".join(map(standalone, cut)) + "\n"
        for path, cut in chosen.items()
    }
    cases = "\n".join(
        f'    case "{model_type}": return try decoded({name}.self, data, base)'
        for model_type, name in sorted(types.items())
    )
    return {**sources, "DecodeConfiguration.swift": DECODE % cases}


def model_types(factory: str) -> dict[str, str]:
    """Return the name of each model type's configuration, from LLMModelFactory.swift.

    A function of its own, such as createQwen3CompatibleModel, names its configuration in its
    body: the one whose name ends in "Configuration" and that the model takes.
    """
    functions = {d.name: d.text for d in declarations(factory) if d.kind == "func"}
    types = {}
    for model_type, name, function in CREATOR.findall(factory):
        own = [name or function]
        if function:
            names = re.findall(r"decode\((\w+)\.self", functions.get(function, ""))
            own += [read for read in names if read.endswith("Configuration")]
        types[model_type] = own[-1]
    return types


def swift_files(folder: Path) -> dict[str, str]:
    """Return the text of the files that may have a declaration of a decoder, by path."""
    models = sorted((folder / MODELS).glob("*.swift"))
    paths = [*models, *(folder / COMMON / name for name in SHARED)]
    return {str(path): read(path) for path in paths}


def read(path: Path) -> str:
    """Read a source file of mlx-swift-lm."""
    return read_text(path, GET_UPSTREAM)


def missing(folder: Path, what: str) -> Exception:
    """Make the error for a declaration that mlx-swift-lm does not have."""
    return tool_error(f"mlx-swift-lm has no {what}", GET_UPSTREAM, where=str(folder))


def closure(
    files: Mapping[str, list[Declaration]], names: Iterable[str]
) -> dict[str, list[Declaration]]:
    """Return declarations by file: those of these names, and what their text names in turn."""
    waiting = [("", name) for name in names]
    chosen: dict[str, list[Declaration]] = {}
    done = set()
    while waiting:
        place = waiting.pop()
        if place in done:
            continue
        done.add(place)
        for path, declaration in named(files, *place):
            if declaration in chosen.setdefault(path, []):
                continue
            chosen[path].append(declaration)
            words = re.findall(r"(?<![.\w])[A-Za-z_]\w*", without_text(declaration.text))
            waiting += [(path, word) for word in dict.fromkeys(words)]
    return {
        path: [d for d in found if d in chosen[path]]  # in the order of the file
        for path, found in files.items()
        if chosen.get(path)
    }


def named(
    files: Mapping[str, list[Declaration]], own: str, name: str
) -> Iterator[tuple[str, Declaration]]:
    """Yield the declarations of a name that a file can see, and a type's extensions.

    Of extensions, only those that read or check a configuration count.
    """
    for path, found in files.items():
        for declaration in found:
            if declaration.name != name or (declaration.is_private and path != own):
                continue
            is_check = "ModelConfigurationValidating" in declaration.conforms
            if declaration.kind == "extension":
                if is_check or name == "JSONDecoder":
                    yield path, declaration
            elif declaration.kind in CUTTABLE:
                yield path, declaration


def standalone(declaration: Declaration) -> str:
    """Return a declaration as it can stand outside of its module."""
    return re.sub(
        r"\bpackage (?=(?:static |mutating )*(?:init|func|var|let|struct|enum)\b)",
        "public ",
        declaration.text,
    )


def differences(decoded: Mapping[str, Any], document: Mapping[str, Any]) -> list[str]:
    """Say how the values that Swift decoded differ from those of a resolved config.json.

    decoded: what `decodeConfiguration` returns. document: the resolved config.json. Numbers
    are compared as 32-bit floats where Swift reads a Float.
    """
    decoder = decoder_of(str(document.get("model_type")))
    if decoder is None:
        return [f"h2o-pack has no table for model_type {shown(document.get('model_type'))}"]
    return list(different_values(decoder, decoded["configuration"], decoder.read(document)))


def different_values(
    decoder: Decoder, decoded: Mapping[str, Any], document: Mapping[str, Any], inside: str = ""
) -> Iterator[str]:
    """Yield a line for each value of a decoder that differs."""
    for name, inner in decoder.inner.items():
        values = document.get(name)
        yield from different_values(
            inner, decoded[name], values if isinstance(values, dict) else document, f"{name}."
        )
    both = {"rope_scaling", "rope_parameters"} <= decoder.keys.keys()
    for name, key in decoder.keys.items():
        given = document.get(name)
        expected = key.default if given is None else given
        # Qwen 3.5 keeps the one as the other.
        actual = decoded.get("rope_scaling" if both and name == "rope_parameters" else name)
        if isinstance(expected, dict) and isinstance(actual, dict):
            expected = {
                k: v for k, v in expected.items() if k in actual or key.kind == "mapping"
            }
        if (given is None and not key.has_constant_default) or (
            both and name == "rope_scaling"
        ):
            continue
        if as_decoded(actual) != as_decoded(expected):
            yield f"{inside}{name} is {shown(expected)} in config.json and {actual} in Swift"


def as_decoded(value: object) -> object:
    """Return a value as Swift holds it: numbers as 32-bit floats, absent entries left out."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float):
        try:
            return struct.unpack("f", struct.pack("f", value))[0]
        except OverflowError:
            return float("inf") if value > 0 else float("-inf")
    if isinstance(value, list | tuple):
        return [as_decoded(element) for element in value]
    if isinstance(value, dict):
        return {key: as_decoded(v) for key, v in value.items() if v is not None}
    return value
