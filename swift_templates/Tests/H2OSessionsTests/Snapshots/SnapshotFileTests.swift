import Foundation
import H2OKit
import MLX
import MLXLMCommon
import XCTest

@testable import H2OSessions

final class SnapshotFileTests: FolderTestCase {
    private var file: URL { folder.appending(path: "chat.safetensors") }

    /// A message with quotes must not be mistaken for a part of the header.
    private let details = ["messages": #"["0.digest":"000", \#u{e9}]"#]

    private func write(to other: URL? = nil) throws {
        let cache = KVCacheSimple()
        let values = (0 ..< 64).map { Float($0) }
        cache.state = [MLXArray(values, [1, 1, 8, 8]), MLXArray(values, [1, 1, 8, 8])]
        let head = ConversationHead(state: state, caches: [cache])
        try SnapshotFile.computed(head, identity: .test(), details: details)
            .write(to: other ?? file)
    }

    private var state: ConversationState {
        var state = ConversationState(chain: TranscriptChain(opening: "a").head)
        state.steps.read(0 ..< 299)
        state.steps.write(5)
        state.unread = [7]
        state.ended = false
        state.pinned = 0 ..< 3
        return state
    }

    private func refusal(_ identity: ConversationIdentity? = nil) throws -> H2OCacheError? {
        let identity = try identity ?? .test()
        var refusal: H2OCacheError?
        XCTAssertThrowsError(try SnapshotFile(file, identity: identity)) { error in
            refusal = error as? H2OCacheError
        }
        return refusal
    }

    private var torn: H2OCacheError {
        .damaged(reason: "it was cut short or changed", file: file)
    }

    private func other(_ found: String) -> H2OCacheError {
        .otherFormat(found: found, known: ["h2o-pack conversation 3"], file: file)
    }

    func testItGivesBackWhatWasWritten() throws {
        try write()

        let saved = try SnapshotFile(file, identity: .test())
        let caches = try saved.head().caches

        XCTAssertEqual(saved.state, state)
        XCTAssertEqual(saved.details["messages"], details["messages"])
        XCTAssertEqual(caches[0].state[0].shape, [1, 1, 8, 8])
        XCTAssertEqual(caches[0].state[1].asArray(Float.self).last, 63)
        XCTAssertThrowsError(try write(to: folder.appending(path: "no/chat.safetensors")))
    }

    func testAFileOfAnotherModelIsRefusedByName() throws {
        try write()

        XCTAssertEqual(
            try refusal(.test(model: "other")),
            .otherModel(found: "tiny", expected: "other", file: file))
    }

    func testAFileThatWasCutAnywhereIsTorn() throws {
        try write()
        let data = try Data(contentsOf: file)

        for count in [0, 7, 8, 100, data.count / 2, data.count - 1] {
            try data.prefix(count).write(to: file)
            XCTAssertEqual(try refusal(), torn, "\(count) bytes")
        }
        try (data + Data([0])).write(to: file)
        XCTAssertEqual(try refusal(), torn)
    }

    func testAFileWithAChangedBitAnywhereIsTorn() throws {
        try write()
        let data = try Data(contentsOf: file)

        for index in stride(from: 8, to: data.count, by: 37) {
            var changed = data
            changed[index] ^= 1
            try changed.write(to: file)
            XCTAssertThrowsError(try SnapshotFile(file, identity: .test()), "byte \(index)")
        }
    }

    func testAFileOfAnotherKindOrVersionIsRefusedByName() throws {
        let array = ["0.0": MLXArray([Float(0)], [1])]
        try save(arrays: array, metadata: ["kind": "h2o-pack cache"], url: file)
        XCTAssertEqual(try refusal(), other(" "))

        try save(
            arrays: array, metadata: ["0.kind": "h2o-pack conversation", "0.version": "9"],
            url: file)
        XCTAssertEqual(try refusal(), other("h2o-pack conversation 9"))
    }
}
