import Foundation
import H2OKit
import H2OSessions
import H2OTestModels
import MLXLMCommon

/// A model that says what it is told to, behind a family's chat template.
struct TemplateFixture {
    let template: ChatTemplate
    let scripted: ScriptedModel
    let model: H2OModel

    /// - Parameter calls: how the model writes tool calls; nil for upstream's usual way
    init(
        _ template: ChatTemplate, calls: ToolCallFormat? = nil, thinks: Bool = true,
        maxSize: Int = 2048
    ) throws {
        self.template = template
        scripted = ScriptedModel(template, thinks: thinks)
        let tokenizer = TemplateTokenizer(template)
        let stop = tokenizer.convertTokenToId(template.stop) ?? 0
        var configuration = ModelConfiguration(id: "scripted", eosTokenIds: [stop])
        configuration.toolCallFormat = calls
        let context = ModelContext(
            configuration: configuration, model: scripted, processor: NoProcessor(),
            tokenizer: tokenizer)
        let caches = H2OCaches(configuration: try H2OConfiguration(maxSize: maxSize))
        model = H2OModel(
            context: context, caches: caches, archiveInFiles: false, plan: nil,
            platform: H2OPlatform(
                memory: MemoryGuard { 1 << 30 }, background: BackgroundGuard(),
                elapsed: { .zero })
        ).withGrammars(template)
    }

    /// All that the model was given, as text.
    var given: String {
        TemplateTokenizer(template).decode(tokenIds: scripted.given, skipSpecialTokens: false)
    }

    /// What the template makes of messages, up to the end of the last one.
    func rendered(_ messages: [H2OMessage], tools: [H2OTool] = []) throws -> String {
        let text = try template.render(
            messages.map(\.fields),
            tools: tools.isEmpty ? nil : tools.map(\.definition.specification))
        let end = text.range(of: template.stop, options: .backwards)
        return String(text[..<(end?.upperBound ?? text.endIndex)])
    }
}

/// A tool that adds two numbers.
func adder() throws -> H2OTool {
    let parameters: JSONValue = .object([
        "type": .string("object"), "properties": .object(["a": .object([:]), "b": .object([:])]),
    ])
    return try H2OTool(name: "add", description: "Adds.", parameters: parameters) { arguments in
        guard case .int(let a) = arguments["a"], case .int(let b) = arguments["b"] else {
            throw MissingNumber()
        }
        return "\(a + b)"
    }
}

struct MissingNumber: LocalizedError {
    var errorDescription: String? { "a and b must be numbers" }
}
