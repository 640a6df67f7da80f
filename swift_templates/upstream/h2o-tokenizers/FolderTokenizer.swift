import Foundation

extension AutoTokenizer {
    /// Makes the tokenizer of a model folder.
    ///
    /// - Parameter directory: contains tokenizer.json, tokenizer_config.json, and chat_template.jinja
    ///   if the template is not in tokenizer_config.json
    /// - Throws: `TokenizerError` for a kind of tokenizer that this library lacks, or an error of
    ///   reading
    public static func from(directory: URL) throws -> any Tokenizer {
        func contents(of name: String) throws -> Config {
            try YYJSONParser.parseToConfig(Data(contentsOf: directory.appending(path: name)))
        }
        var settings = try contents(of: "tokenizer_config.json").dictionary(or: [:])
        let template = directory.appending(path: "chat_template.jinja")
        if FileManager.default.fileExists(atPath: template.path) {
            settings["chat_template"] = Config(try String(contentsOf: template, encoding: .utf8))
        }
        return try from(
            tokenizerConfig: Config(settings), tokenizerData: contents(of: "tokenizer.json"))
    }
}
