"""Decoders are cut out of Swift sources by name, and a missing one is named."""

import json
from pathlib import Path

import pytest

from h2o_pack.errors import ExitCode
from h2o_pack.resolved.decoders import decoder_sources, differences
from h2o_pack.resolved.swift_source import declarations, without_text
from tests.bridge.models.small_configs import small_config
from tests.bridge.trees import build_tree
from tests.messages import refused
from tools.swift_configurations import entry

FACTORY = """
private func createOwn(configuration data: Data) throws -> any LanguageModel {
    let other = try JSONDecoder.json5().decode(Architecture.self, from: data)
    let configuration = try JSONDecoder.json5().decode(OwnConfiguration.self, from: data)
    return OwnModel(configuration)
}
public enum LLMTypeRegistry {
    public static let shared: ModelTypeRegistry<LanguageModel> = .init(creators: [
        "own": createOwn,
        "plain": create(
            PlainConfiguration.self, PlainModel.init),
    ])
}
"""
PLAIN = """
import MLX

// struct PlainConfiguration { in a comment }
let note = "struct PlainConfiguration { \\(["a": "}"]["a"]!) in a text }"

class PlainModel: Module { let weights: MLXArray }

private enum RopeKey: String, CodingKey { case ropeParameters = "rope_parameters" }

public struct PlainConfiguration: Codable, Sendable {
    var hiddenSize: Int
    var layers = 2
    var ropeTheta: Float = 10_000 // a comment with a brace {
    var scaling: [String: StringOrNumber]?
    var inner: Inner?
    var twice: Int { hiddenSize * 2 }

    package init() { hiddenSize = widest(1) }

    enum CodingKeys: String, CodingKey {
        case hiddenSize = "hidden_size"
        case layers
        case ropeTheta = "rope_theta"
        case scaling = "rope_scaling"
        case inner
    }
}

struct Inner: Codable { var text: String }

func widest(_ width: Int) -> Int { width }
func unused() -> MLXArray { MLXArray(1) }
"""
OWN = """
public struct OwnConfiguration: Codable {
    var hiddenSize: Int
    var kvHeads: Int
    var bias: Bool = false
    var pattern: String

    enum CodingKeys: String, CodingKey {
        case hiddenSize = "hidden_size"
        case kvHeads = "num_key_value_heads"
        case bias
        case pattern
    }
    enum VLMCodingKeys: String, CodingKey { case textConfig = "text_config" }

    public init(from decoder: Decoder) throws {
        let nested = try decoder.container(keyedBy: VLMCodingKeys.self)
        let container =
            try nested.nestedContainer(keyedBy: CodingKeys.self, forKey: .textConfig)
        hiddenSize = try container.decode(
            Int.self, forKey: OwnConfiguration.CodingKeys.hiddenSize)
        kvHeads = try container.decodeIfPresent(Int.self, forKey: .kvHeads) ?? hiddenSize / 2
        if let bias = try container.decodeIfPresent(Bool.self, forKey: .bias) {
            self.bias = bias
        }
        if let text = try? container.decode(String.self, forKey: .pattern) {
            pattern = text
        } else if let texts = try? container.decode([String].self, forKey: .pattern) {
            pattern = texts.joined()
        } else {
            throw OwnError()
        }
    }
}
extension OwnConfiguration: ModelConfigurationValidating {
    public func validateModelConfiguration() throws {}
}
extension OwnModel: LoRAModel {}
"""
COMMON = {
    "BaseConfiguration.swift": "public struct BaseConfiguration: Codable { var model: String }",
    "JSONDecodingTypes.swift": "public enum StringOrNumber: Codable { case int(Int) }",
    "ModelFactory.swift": "public protocol ModelConfigurationValidating {}\n"
    "public enum ModelFactoryError: Error { case unsupportedModelType(String) }",
    "RoPEUtils.swift": "public class RoPE: Module {}",
    "Extensions/JSONDecoder+JSON5.swift": "extension JSONDecoder { static func json5() {} }",
}


def sources(folder, **changes):
    """Write a small mlx-swift-lm; a file that is changed to None is left out."""
    files = {"Plain.swift": PLAIN, "Own.swift": OWN, **changes}
    build_tree(
        folder,
        {
            "Libraries/MLXLLM/LLMModelFactory.swift": FACTORY,
            **{f"Libraries/MLXLLM/Models/{name}": text for name, text in files.items() if text},
            **{f"Libraries/MLXLMCommon/{name}": text for name, text in COMMON.items()},
        },
    )
    return folder


def test_a_decoder_comes_with_what_it_names_and_nothing_else(tmp_path):
    cut = decoder_sources(sources(tmp_path))
    assert set(cut) == {
        "Plain.swift", "Own.swift", "BaseConfiguration.swift", "JSONDecodingTypes.swift",
        "ModelFactory.swift", "JSONDecoder+JSON5.swift", "DecodeConfiguration.swift",
    }  # fmt: skip
    plain = cut["Plain.swift"]
    assert "struct Inner" in plain
    assert "func widest" in plain
    assert "public init() { hiddenSize" in plain  # no package exists where it compiles
    for other in ("unused", "import MLX", "class", "in a comment", "in a text"):
        assert other not in plain
    assert "extension OwnConfiguration: ModelConfigurationValidating" in cut["Own.swift"]
    assert "LoRAModel" not in cut["Own.swift"]


def test_each_model_type_is_decoded_by_its_own_configuration(tmp_path):
    text = decoder_sources(sources(tmp_path))["DecodeConfiguration.swift"]
    assert 'case "own": return try decoded(OwnConfiguration.self, data, base)' in text
    assert 'case "plain": return try decoded(PlainConfiguration.self, data, base)' in text


@pytest.mark.parametrize("name", ["Plain.swift", "Own.swift"])
def test_a_missing_decoder_is_named(tmp_path, name):
    struct = name.replace(".swift", "Configuration")
    message = refused(
        decoder_sources, sources(tmp_path, **{name: "struct Other {}"}), code=ExitCode.TOOL
    )
    assert message.startswith(f"mlx-swift-lm has no {struct}, the configuration of model type")


def test_a_folder_without_sources_is_named(tmp_path):
    message = refused(decoder_sources, tmp_path, code=ExitCode.USAGE)
    assert "LLMModelFactory.swift cannot be read" in message


def test_comments_and_texts_hide_no_brackets():
    source = 'let a = "{\\(f("}"))" /* { /* { */ } */ // {\nlet b = #"{"# + """\n { " \n"""\n'
    blank = without_text(source)
    assert len(blank) == len(source)
    assert not set("{}") & set(blank)
    assert [declaration.name for declaration in declarations(source)] == ["a", "b"]


def keys_of(text, name):
    declaration = next(d for d in declarations(text) if d.name == name)
    texts = {"/a.swift": text, "/Libraries/MLXLMCommon/RoPEUtils.swift": ""}

    return entry(declaration, "/a.swift", list(declarations(text)), texts, Path("/"))


def test_keys_that_the_compiler_decodes_are_required_unless_they_are_optional():
    assert keys_of(PLAIN, "PlainConfiguration")["keys"] == {
        "hidden_size": {"kind": "int", "required": True},
        "layers": {"kind": "int", "required": True},
        "rope_theta": {"kind": "float", "required": True},
        "rope_scaling": {"kind": "mapping"},
        "inner": {"kind": "Inner"},
    }


def test_keys_that_a_configuration_decodes_itself_have_its_defaults():
    own = keys_of(OWN, "OwnConfiguration")
    assert own["inside"] == "text_config"
    assert own["keys"] == {
        "hidden_size": {"kind": "int", "required": True},
        "num_key_value_heads": {"kind": "int", "default_from": "hiddenSize / 2"},
        "bias": {"kind": "bool", "default": False},
        "pattern": {"kind": "string or strings", "required": True},
    }


def test_differences_name_the_key_and_both_values():
    document = small_config("llama")
    decoded = json.loads(json.dumps(document)) | {
        "rope_theta": 10_000, "rms_norm_eps": 9.9999997e-06, "rope_traditional": False,
    }  # fmt: skip
    decoded.pop("rope_scaling", None)
    assert differences({"configuration": decoded}, document) == [
        "rope_theta is 1000.0 in config.json and 10000 in Swift"
    ]
    assert differences({"configuration": {}}, {"model_type": "x"}) == [
        'h2o-pack has no table for model_type "x"'
    ]
