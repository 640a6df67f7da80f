import Foundation
import H2OKit
import H2OSessions
import XCTest

final class SessionSavingTests: XCTestCase {
    private let folder = FileManager.default.temporaryDirectory
        .appending(path: UUID().uuidString, directoryHint: .isDirectory)

    override func tearDownWithError() throws {
        try? FileManager.default.removeItem(at: folder)
    }

    private var file: URL { folder.appending(path: "conversation.safetensors") }

    private let options = H2OSession.Options(sampling: .greedy, maxTokens: 6)

    private func saved(_ fixture: SessionFixture) async throws -> H2OSession {
        let session = fixture.makeSession()
        for prompt in ["one", "two", "three"] { _ = try await session.respond(to: prompt) }
        try await session.save(to: folder)
        return session
    }

    private func fixture(maxSize: Int = 32, hasTemplate: Bool = true) throws -> SessionFixture {
        var fixture = try SessionFixture(maxSize: maxSize)
        fixture.instructions = "be brief."
        fixture.hasTemplate = hasTemplate
        return fixture
    }

    func testASavedConversationGoesOnAsIfNothingHadHappened() async throws {
        let original = try await saved(fixture())

        let restored = try await H2OSession.restore(
            from: folder, model: fixture().makeModel(), options: options)

        let (before, after) = (await original.messages, await restored.messages)
        XCTAssertEqual(before, after)
        let (ours, theirs) = (
            try await restored.respond(to: "four"), try await original.respond(to: "four")
        )
        XCTAssertEqual(ours.text, theirs.text)
        XCTAssertEqual(ours.usage.readTokens, theirs.usage.readTokens)
        let (kept, expected) = (await restored.keptPositions, await original.keptPositions)
        XCTAssertEqual(kept, expected)
    }

    func testWithOtherToolsItsTokensAreCompared() async throws {
        let original = try await saved(fixture())
        let tool = try H2OTool(
            name: "f", description: "", parameters: .object(["type": .string("object")])
        ) { _ in "" }

        let restored = try await H2OSession.restore(
            from: folder, model: fixture().makeModel(), tools: [tool], options: options)

        // This template does not say which tools there are.
        let (ours, theirs) = (
            try await restored.respond(to: "four").usage,
            try await original.respond(to: "four").usage
        )
        XCTAssertEqual(ours.cachedTokens, theirs.cachedTokens)
        XCTAssertEqual(ours.readTokens, theirs.readTokens)
    }

    func testBeforeTheFirstReplyThereIsNothingToSave() async throws {
        let session = try SessionFixture().makeSession()

        await assertThrows(try await session.save(to: folder)) {
            XCTAssertEqual($0 as? H2OSessionError, .nothingToSave)
        }
    }

    func testAnotherPolicyOrTemplateIsRefusedByName() async throws {
        _ = try await saved(fixture())

        let others = [try fixture(maxSize: 64), try fixture(hasTemplate: false)]
        var refusals = [H2OFileError?]()
        for other in others {
            await assertThrows(
                try await H2OSession.restore(from: folder, model: other.makeModel())
            ) { refusals.append($0 as? H2OFileError) }
        }

        guard case .otherPolicy = refusals[0] else { return XCTFail("\(refusals)") }
        XCTAssertEqual(refusals[1], .otherTemplate(file: file.path))
    }

    func testATornFileIsNoticed() async throws {
        _ = try await saved(fixture())
        let whole = try Data(contentsOf: file)
        try whole.prefix(whole.count - 100).write(to: file)

        await assertThrows(
            try await H2OSession.restore(from: folder, model: fixture().makeModel())
        ) { XCTAssertEqual($0 as? H2OFileError, .torn(file: file.path)) }
    }
}
