import Foundation
import H2OKit
import H2OTestModels
import MLX
import MLXLMCommon
import XCTest

@testable import H2OSessions

/// A session with an ``EchoModel``, and the model, so that a test can inspect it.
struct SessionFixture {
    let model: EchoModel
    /// The chat template of a family; nil for `<u:text|`.
    let template: ChatTemplate?
    /// The format of the model's tool calls; nil for upstream's default format.
    var calls: ToolCallFormat?
    var background = BackgroundGuard()
    var configuration: H2OConfiguration
    var instructions: String?
    var maxTokens: Int?
    var promptChunk = 512
    var hasTemplate = true
    var archives = H2OPlatform.ownArchives
    var archiveInFiles = false
    var snapshots = H2OSnapshotLimits()
    /// What the chat template does; nil to find it by rendering.
    var chat: ChatFacts?
    var positions: Int?
    var vocabulary: Int?
    var pressure = MemoryPressure()
    var conditions = DeviceConditions()
    var plan: MemoryPlan?
    var free = 1 << 30
    var elapsed: @Sendable () -> Duration = { .zero }

    /// - Parameters:
    ///   - maxSize: C; nil for 64, or 2048 with a template
    ///   - texts: the texts of the model's replies, in order
    init(
        _ template: ChatTemplate? = nil, thinks: Bool = true, maxSize: Int? = nil,
        saying texts: String...
    ) throws {
        (self.template, model) = (template, EchoModel(template, thinks: thinks))
        model.replies = texts
        maxTokens = template == nil ? 6 : nil
        configuration = try H2OConfiguration(
            maxSize: maxSize ?? (template == nil ? 64 : 2048), recentBudget: 8)
    }

    static func reading(_ promptChunk: Int) throws -> SessionFixture {
        var fixture = try SessionFixture()
        fixture.promptChunk = promptChunk
        return fixture
    }

    /// A fixture with recall. Its archives are in a folder or in memory, and keep the dtype of keys
    /// and values, because the model's head dim of 8 is not a multiple of any group size.
    static func recalling(archives: URL, inFiles: Bool) throws -> SessionFixture {
        var fixture = try SessionFixture(maxSize: 32)
        fixture.configuration = try H2OConfiguration(
            maxSize: 32, recentBudget: 8, recall: H2ORecall(ask: 8, reach: 8, archiveBits: 16))
        (fixture.archives, fixture.archiveInFiles) = (archives, inFiles)
        return fixture
    }

    func makeModel() -> H2OModel {
        var context = model.context(hasTemplate: hasTemplate)
        context.configuration.toolCallFormat = calls
        let loaded = H2OModel(
            LoadedModel(
                context: context, caches: H2OCaches(configuration: configuration),
                archiveInFiles: archiveInFiles, snapshots: snapshots, promptChunk: promptChunk,
                facts: ModelFacts(positions: positions, vocabulary: vocabulary), chat: chat,
                plan: plan,
                platform: H2OPlatform(
                    memory: MemoryGuard { [free] in free }, background: background,
                    pressure: pressure, conditions: conditions, archives: archives,
                    footprint: { 123_456_789 }, elapsed: elapsed)))
        return template.map(loaded.withGrammars) ?? loaded
    }

    func makeSession() -> H2OSession {
        makeModel().makeSession(
            instructions: instructions,
            options: H2OSession.Options(sampling: .greedy, maxTokens: maxTokens))
    }
}

extension H2OSession {
    /// Removes all messages but the first ones.
    func keep(_ count: Int) async throws {
        try await setTranscript(Array(transcript.prefix(count)))
    }

    /// Returns all parts of a streamed reply.
    func parts(to prompt: String) async throws -> [Part] {
        var parts = [Part]()
        for try await part in streamResponse(to: prompt) { parts.append(part) }
        return parts
    }
}

extension H2OSession.Part {
    var text: String? {
        if case .text(let text) = self { text } else { nil }
    }

    var usage: H2OSession.Usage? {
        if case .usage(let usage) = self { usage } else { nil }
    }
}

/// Waits until a condition is true, for at most a minute. Use it for conditions that depend on the
/// release of a session or a model, because its last job on another thread may keep it for a
/// moment.
func holdsOnceReleased(_ condition: () async throws -> Bool) async throws -> Bool {
    let begun = ContinuousClock.now
    while try await !condition() {
        guard begun.duration(to: .now) < .seconds(60) else { return false }
        await Task.yield()
    }
    return true
}

func tokenArray(_ tokens: some Sequence<Int>) -> MLXArray {
    MLXArray(tokens.map { Int32($0) })
}

/// `XCTAssertThrowsError` for an asynchronous expression.
func assertThrows<T>(
    _ expression: @autoclosure () async throws -> T, line: UInt = #line,
    file: StaticString = #filePath, check: (any Error) -> Void
) async {
    do {
        _ = try await expression()
        XCTFail("nothing was thrown", file: file, line: line)
    } catch {
        check(error)
    }
}

/// Asserts that an asynchronous expression throws this error.
func assertThrows<T, Failure: Error & Equatable>(
    _ expression: @autoclosure () async throws -> T, _ expected: Failure, line: UInt = #line,
    file: StaticString = #filePath
) async {
    await assertThrows(try await expression(), line: line, file: file) {
        XCTAssertEqual($0 as? Failure, expected, file: file, line: line)
    }
}

/// `XCTAssertEqual` for a value that must be awaited, which an autoclosure cannot do.
func assertEqual<T: Equatable>(
    _ value: T, _ expected: T, _ message: String = "", file: StaticString = #filePath,
    line: UInt = #line
) {
    XCTAssertEqual(value, expected, message, file: file, line: line)
}

/// The base class of tests that each need a new folder, which is deleted after the test.
class FolderTestCase: XCTestCase {
    let folder = FileManager.default.temporaryDirectory
        .appending(path: UUID().uuidString, directoryHint: .isDirectory)

    override func setUpWithError() throws {
        try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    }

    override func tearDownWithError() throws {
        try? FileManager.default.removeItem(at: folder)
    }
}
