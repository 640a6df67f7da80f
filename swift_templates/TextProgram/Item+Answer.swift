import Foundation
import H2OConfigurations
import MLXLMCommon

extension Item {
    /// Answers the item. An error of the app's libraries is an answer too.
    func answer(_ model: ModelText) async -> Answer {
        do {
            return try await answered(model)
        } catch {
            // Other errors have no text of their own for a reader.
            return Answer(error: (error as? any LocalizedError)?.errorDescription ?? "\(error)")
        }
    }

    private func answered(_ model: ModelText) async throws -> Answer {
        var answer = Answer()
        switch self {
        case .load:
            _ = try await model.tokenizer()
        case .encode(let text, let special):
            answer.ids = try await model.tokenizer().encode(
                text: text, addSpecialTokens: special)
        case .decode(let ids):
            let tokenizer = try await model.tokenizer()
            answer.text = tokenizer.decode(tokenIds: ids, skipSpecialTokens: false)
            answer.plain = tokenizer.decode(tokenIds: ids, skipSpecialTokens: true)
            answer.streamedText = try await model.streamed(ids, plain: false)
            answer.streamedPlain = try await model.streamed(ids, plain: true)
        case .template(let conversation, let addGenerationPrompt):
            let (tools, variables) = (conversation.tools, conversation.variables)
            answer.ids = try await model.tokenizer().applyChatTemplate(
                messages: conversation.messages.map(\.fields),
                tools: tools.isEmpty ? nil : tools.map(\.fields),
                additionalContext: variables.isEmpty ? nil : variables.mapValues(\.plain),
                addGenerationPrompt: addGenerationPrompt)
        case .turns(let conversation, let turns):
            answer.turns = try await model.turns(conversation, turns)
        case .configuration(let file):
            let values = try decodeConfiguration(Data(contentsOf: URL(filePath: file)))
            answer.values = try JSONDecoder().decode(JSONValue.self, from: values)
        }
        return answer
    }
}

extension JSONValue {
    /// The fields of an object, in the types that chat templates read.
    fileprivate var fields: [String: any Sendable] {
        if case .object(let fields) = self { fields.mapValues(\.plain) } else { [:] }
    }
}
