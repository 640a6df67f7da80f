import Foundation
import H2OKit
import H2OTestModels
import MLX
import MLXLMCommon
import XCTest

@testable import H2OSessions

/// Tests conversations that begin with the caches of a system prompt in the model's folder.
final class PreparedPromptTests: ModelFolderTestCase {
    private static let instructions = "you are brief."
    private static let otherPrompt = PreparedPromptProblem.otherPrompt.localizedDescription

    func testTheFirstTurnReadsWhatFollowsTheSystemPrompt() async throws {
        let usual = try await makeModel()
        let expected = try await session(usual.model).respond(to: "what is a heavy hitter")
        let count = try prepare()
        let prepared = try await makeModel()

        let response = try await session(prepared.model).respond(to: "what is a heavy hitter")

        XCTAssertEqual(response.content, expected.content)
        XCTAssertEqual(response.usage.readTokens, expected.usage.readTokens - count)
        XCTAssertEqual(response.usage.cachedTokens, count)
        XCTAssertEqual(response.usage.promptTokens, expected.usage.promptTokens)
        XCTAssertNil(response.usage.preparedPromptProblem)
        XCTAssertNil(expected.usage.preparedPromptProblem)
        XCTAssertEqual(
            prepared.echo.calls, Array(usual.echo.calls.dropFirst()), "but for the first call")
        XCTAssertEqual(rows(prepared.echo), rows(usual.echo))

        let next = try await session(prepared.model).respond(to: "what is a heavy hitter")
        XCTAssertEqual(next.content, expected.content, "every conversation begins with them")
        XCTAssertEqual(next.usage.cachedTokens, count)
    }

    func testSoItDoesWhereALayerHasSeveralCaches() async throws {
        let count = try prepare(hasLists: true)
        let model = try await makeModel()
        model.echo.hasLists = true

        let usage = try await session(model.model).respond(to: "hi").usage

        XCTAssertNil(usage.preparedPromptProblem)
        XCTAssertEqual(usage.cachedTokens, count)
    }

    func testAnArchiveInMemoryOrInFilesBeginsWithTheSystemPrompt() async throws {
        let recall = try H2ORecall(ask: 8, reach: 8, archiveBits: 16)
        let prompt = String(repeating: "tell me more. ", count: 6)
        let root = folder.appending(path: "archives", directoryHint: .isDirectory)
        let usual = session(try await makeModel(recall: recall).model)
        let count = try prepare(recall: recall)
        let prepared = [
            session(try await makeModel(recall: recall).model),
            session(try await makeModel(recall: recall, archives: root).model),
        ]
        for turn in 0 ..< 6 {
            let expected = try await usual.respond(to: prompt)
            for session in prepared {
                let response = try await session.respond(to: prompt)

                XCTAssertNil(response.usage.preparedPromptProblem)
                XCTAssertEqual(response.content, expected.content)
                XCTAssertEqual(
                    response.usage.readTokens,
                    expected.usage.readTokens - (turn == 0 ? count : 0))
                let (ours, theirs) = (response.usage.recalled, expected.usage.recalled)
                XCTAssertEqual(ours?.reads, theirs?.reads)
                XCTAssertEqual(ours?.archiveBytes, theirs?.archiveBytes)
            }
        }
        let files = FileManager.default.enumerator(atPath: root.path)?.compactMap { $0 as? String }
        XCTAssertEqual(
            files?.filter { $0.hasSuffix(".safetensors") }.isEmpty, false, "\(files ?? [])")
    }

    func testReadingAheadReadsNothingOfIt() async throws {
        let count = try prepare()
        let prepared = try await makeModel()
        let session = session(prepared.model)

        try await session.prewarm()

        XCTAssertEqual(prepared.echo.calls, [])
        let usage = try await session.respond(to: "hi").usage
        XCTAssertEqual(usage.cachedTokens, count)
        XCTAssertNil(usage.preparedPromptProblem)
    }

    func testTheFirstReplySaysWhatReadingAheadFound() async throws {
        try prepare()
        let session = session(try await makeModel().model, instructions: "you are witty.")
        try await session.prewarm()
        let problems = [
            try await session.respond(to: "hi").usage.preparedPromptProblem,
            try await session.respond(to: "hi").usage.preparedPromptProblem,
        ]
        XCTAssertEqual(problems, [Self.otherPrompt, nil])
    }

    func testOtherInstructionsAreReadAndThatIsSaid() async throws {
        try prepare()
        let model = try await makeModel().model
        for instructions in ["you are witty.", "you are kind.", nil] {
            let session = session(model, instructions: instructions)

            let usage = try await session.respond(to: "hi").usage
            let later = try await session.respond(to: "hi").usage

            XCTAssertEqual(usage.preparedPromptProblem, Self.otherPrompt)
            XCTAssertEqual(usage.cachedTokens, 0)
            XCTAssertNil(later.preparedPromptProblem, "only the first turn reads the prompt")
        }
    }

    func testCachesOfAnotherModelOrWithOtherSettingsAndDamagedOnesAreNotUsed() async throws {
        let cases: [(PreparedPromptProblem, () throws -> Void)] = [
            (.otherModel, { try self.prepare(digest: String(repeating: "e", count: 64)) }),
            (.otherCaches, { try self.prepare(maxSize: 48) }),
            (.otherCaches, { try self.prepare(recentBudget: 9) }),
            (.otherCaches, { try self.prepare(chunk: 256) }),
            (.unreadable(""), { try self.write("no caches", to: PreparedPrompt.fileName) }),
        ]
        for (expected, prepare) in cases {
            try prepare()

            let usage = try await session(makeModel().model).respond(to: "hi").usage

            // The reason why a file cannot be read follows after a colon.
            let text = expected.localizedDescription.prefix { $0 != ":" }
            let found = try XCTUnwrap(usage.preparedPromptProblem)
            XCTAssertTrue(found.hasPrefix(text), found)
            XCTAssertEqual(usage.cachedTokens, 0)
        }
    }

    /// Writes the model's caches after the system prompt to the model's folder.
    ///
    /// - Returns: the number of the prompt's tokens
    @discardableResult
    private func prepare(
        maxSize: Int = 64, recentBudget: Int = 8, recall: H2ORecall? = nil,
        digest: String = digest, chunk: Int = 512, hasLists: Bool = false
    ) throws -> Int {
        let text = "<s:\(Self.instructions)|\n<u:"
        let tokens = TestTokenizer().tokens(of: text)
        let configuration = try H2OConfiguration(
            maxSize: maxSize, recentBudget: recentBudget, pinned: [0 ..< tokens.count],
            recall: recall)
        let model = EchoModel()
        model.hasLists = hasLists
        let caches = try H2OCaches(configuration: configuration).makeCaches(for: model)
        _ = model(MLXArray(tokens.map { Int32($0) }, [1, tokens.count]), cache: caches)
        let file = folder.appending(path: "prompt.safetensors")
        let metadata = [
            "tokens": String(describing: tokens), "model": digest, "chunk": "\(chunk)",
        ]
        try H2OCacheFile.computed(caches, metadata: metadata).write(to: file)
        let place = folder.appending(path: PreparedPrompt.fileName)
        try? FileManager.default.removeItem(at: place)
        try FileManager.default.moveItem(at: file, to: place)
        return tokens.count
    }

    private func makeModel(
        recall: H2ORecall? = nil, archives: URL? = nil
    ) async throws -> (model: H2OModel, echo: EchoModel) {
        let loader = EchoLoader()
        let configuration = try H2OConfiguration(maxSize: 64, recentBudget: 8, recall: recall)
        let model = try await load(
            configuration: configuration, archives: archives, loader: loader)
        return (model, loader.model)
    }

    private func session(
        _ model: H2OModel, instructions: String? = instructions
    ) -> H2OSession {
        model.makeSession(
            instructions: instructions,
            options: H2OSession.Options(sampling: .greedy, maxTokens: 6))
    }

    /// The state of all caches of the last call, as numbers.
    private func rows(_ model: EchoModel) -> [[Float]] {
        model.lastCaches.flatMap(\.state).map { $0.asType(.float32).asArray(Float.self) }
    }
}
