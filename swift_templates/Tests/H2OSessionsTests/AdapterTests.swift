import Foundation
import H2OKit
import H2OTestModels
import MLX
import MLXLMCommon
import XCTest

@testable import H2OSessions

/// An adapter that notes what is done with it.
private struct NotedAdapter: ModelAdapter {
    let name: String
    let notes: Recorder<String>
    var fits = true

    func load(into model: any LanguageModel) throws {
        notes.add("load \(name)")
        if !fits { throw ModelAdapterError.incompatibleModelType }
    }

    func unload(from model: any LanguageModel) { notes.add("unload \(name)") }

    func fuse(with model: any LanguageModel) { notes.add("fuse \(name)") }

    var loaded: LoadedAdapter { LoadedAdapter(self, digest: name) }
}

final class AdapterTests: FolderTestCase {
    private let notes = Recorder<String>()

    private func adapter(_ name: String, fits: Bool = true) -> LoadedAdapter {
        NotedAdapter(name: name, notes: notes, fits: fits).loaded
    }

    func testAConversationGoesOnWithAnotherAdapterAndReadsItsMessagesAgain() async throws {
        let fixture = try SessionFixture()
        let (model, twin) = (fixture.makeModel(), try SessionFixture())
        let options = H2OSession.Options(sampling: .greedy, maxTokens: 6)
        let session = model.makeSession(options: options)
        _ = try await session.respond(to: "one")
        try await model.use(adapter("a"))
        let calls = fixture.model.calls.count

        let reply = try await session.respond(to: "two")

        XCTAssertEqual(reply.usage.cachedTokens, 0)
        let read = fixture.model.calls[calls...].joined().count
        assertEqual(await session.tokensSeen, read, "each token is read once")
        // The model itself is unchanged here, so the reply is that of a session without a change.
        let usual = twin.makeSession()
        _ = try await usual.respond(to: "one")
        assertEqual(try await usual.respond(to: "two").content, reply.content)

        try await model.use(adapter("b"))
        try await model.use(nil)
        XCTAssertEqual(notes.entries, ["load a", "unload a", "load b", "unload b"])
    }

    func testAnAdapterThatDoesNotFitLeavesTheOneBefore() async throws {
        let model = try SessionFixture().makeModel()
        try await model.use(adapter("a"))
        await assertThrows(try await model.use(adapter("b", fits: false))) {
            guard case .incompatibleModelType? = $0 as? ModelAdapterError else {
                return XCTFail("\($0)")
            }
        }
        XCTAssertEqual(
            notes.entries, ["load a", "unload a", "load b", "unload b", "load a"])
        XCTAssertEqual(model.loaded.adapter?.digest, "a")
    }

    func testASavedConversationBelongsToItsAdapter() async throws {
        let model = try SessionFixture().makeModel()
        try await model.use(adapter("a"))
        let session = model.makeSession(options: H2OSession.Options(maxTokens: 6))
        _ = try await session.respond(to: "one")
        try await session.save(to: folder)
        _ = try await H2OSession.restore(from: folder, model: model)

        try await model.use(nil)

        await assertThrows(try await H2OSession.restore(from: folder, model: model)) {
            guard case .otherModel(let found, let expected, _)? = $0 as? H2OCacheError else {
                return XCTFail("\($0)")
            }
            XCTAssertEqual(found, "\(expected) with the adapter a")
        }
    }

    func testAFileWithWeightsOfTheModelIsNoAdapter() async throws {
        let one = MLXArray([Float](repeating: 1, count: 8), [4, 2])
        let configuration = """
            {"fine_tune_type": "lora", "num_layers": 1,
            "lora_parameters": {"rank": 2, "scale": 20}}
            """
        try Data(configuration.utf8)
            .write(to: folder.appending(path: LoadedAdapter.configuration))
        let model = try SessionFixture().makeModel()
        for (name, isRefused) in [("q_proj.weight", true), ("q_proj.lora_a", false)] {
            try MLX.save(
                arrays: ["model.layers.0.\(name)": one],
                url: folder.appending(path: LoadedAdapter.weights))
            await assertThrows(try await model.setAdapter(folder)) {
                switch $0 as? ModelAdapterError {
                case .unsupportedAdapterType?: XCTAssertTrue(isRefused)
                case .incompatibleModelType?: XCTAssertFalse(isRefused)
                default: XCTFail("\($0)")
                }
            }
        }
    }
}
