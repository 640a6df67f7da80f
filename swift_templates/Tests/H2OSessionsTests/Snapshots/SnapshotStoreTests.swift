import Foundation
import H2OKit
import MLX
import MLXLMCommon
import XCTest

@testable import H2OSessions

final class SnapshotStoreTests: FolderTestCase {
    private let messages = (0 ..< 20).map { H2OMessage.user("message \($0)") }

    private func chain(_ count: Int) -> TranscriptChain {
        TranscriptChain(opening: "", messages: Array(messages.prefix(count)))
    }

    /// A snapshot of a conversation with this many messages of ten tokens each. It has one cache of
    /// 8 kB.
    private func snapshot(_ count: Int, tokens: [Int]? = nil) throws -> ConversationSnapshot {
        var state = ConversationState(chain: chain(count).head)
        state.steps.read(tokens ?? Array(0 ..< 10 * count))
        let cache = KVCacheSimple()
        let values = (0 ..< 1024).map { Float($0 + count) }
        cache.state = [MLXArray(values, [1, 1, 128, 8]), MLXArray(values, [1, 1, 128, 8])]
        return try ConversationSnapshot(of: ConversationHead(state: state, caches: [cache]))
    }

    private func store(memory: Int, files: Int, room: Int? = nil) throws -> SnapshotStore {
        let identity = try ConversationIdentity.test()
        return SnapshotStore(
            H2OSnapshotLimits(memory: memory, files: files), identity: { identity },
            archives: folder.appending(path: "archives"),
            root: folder.appending(path: "snapshots"), room: { _ in room })
    }

    /// The files of snapshots, as paths below the folder.
    private var files: [String] {
        let names = FileManager.default.enumerator(atPath: folder.path)?.allObjects ?? []
        return names.map { "\($0)" }.filter { $0.hasSuffix(".safetensors") }
    }

    func testTheBytesInMemoryAndInFilesAreBounded() throws {
        var store = try store(memory: 3 * 8192, files: 50_000)
        for count in 1 ... 20 {
            try store.keep(snapshot(count))
            XCTAssertLessThanOrEqual(store.bytes.memory, 3 * 8192)
            XCTAssertLessThanOrEqual(store.bytes.files, 50_000)
        }

        XCTAssertEqual(store.tokens.suffix(3), [180, 190, 200])
        XCTAssertEqual(store.tokens.count - 3, files.count)
        XCTAssertGreaterThan(files.count, 2)
        XCTAssertEqual(store.tokens, store.tokens.sorted())
    }

    func testANewFolderIsNeverTakenForAStaleOne() throws {
        let root = folder.appending(path: "conversations")
        let lock = NSLock()
        nonisolated(unsafe) var problems = [any Error]()
        DispatchQueue.concurrentPerform(iterations: 1000) { _ in
            do {
                _ = try ConversationFolder(in: root)
                ConversationFolder.deleteStale(in: root)
            } catch {
                lock.withLock { problems.append(error) }
            }
        }
        XCTAssertTrue(problems.isEmpty, "\(problems)")
    }

    func testWhereMemoryIsShortTheyGoToFiles() throws {
        var short = try store(memory: 1 << 20, files: 1 << 20, room: 2 * 8192 + 100)
        var none = try store(memory: 1 << 20, files: 1 << 20, room: -1)
        var ample = try store(memory: 1 << 20, files: 1 << 20, room: 1 << 30)
        for count in 1 ... 5 {
            try short.keep(snapshot(count))
            try none.keep(snapshot(count))
            try ample.keep(snapshot(count))
        }

        XCTAssertEqual(ample.bytes, H2OSnapshotLimits(memory: 5 * 8192, files: 0))
        XCTAssertEqual(short.bytes.memory, 2 * 8192)
        XCTAssertEqual(none.bytes.memory, 0)
        XCTAssertEqual(short.tokens, ample.tokens)
        XCTAssertEqual(none.tokens, ample.tokens)
    }

    func testASnapshotWhoseFileIsDamagedIsPassedOver() throws {
        var store = try store(memory: 0, files: 1 << 20)
        try store.keep(snapshot(2))
        let first = files
        try store.keep(snapshot(4))
        for file in files where !first.contains(file) {
            try Data("damaged".utf8).write(to: folder.appending(path: file))
        }

        var steps = CacheSteps()
        for _ in 0 ..< 2 { steps.read(0 ..< 20) }
        XCTAssertEqual(store.nearest(within: steps)?.state.chain, chain(2).head)
        let state = try XCTUnwrap(store.state(before: chain(20)))
        XCTAssertEqual(state.chain, chain(4).head, "the state is still known")
        XCTAssertNil(store.nearest(within: state.steps))
        XCTAssertEqual(store.tokens, [20])
    }

    func testOneThatThePlanHasRoomForStaysInMemory() throws {
        for files in [1 << 20, 0] {
            var store = try store(memory: 8192, files: files)
            store.add(try snapshot(2))
            store.add(try snapshot(4), planned: 8192)
            XCTAssertNil(store.takeExcess(planned: 8192))
            XCTAssertEqual(store.tokens, [20, 40])

            store.add(try snapshot(4))
            let excess = store.takeExcess()
            XCTAssertEqual(excess != nil, files > 0)
            XCTAssertEqual(store.tokens, [40])
        }
    }

    func testWhatIsWrittenAfterAllWasForgottenStaysForgotten() throws {
        var store = try store(memory: 0, files: 1 << 20)
        store.add(try snapshot(2))
        let moved = try XCTUnwrap(store.takeExcess())
        let contents = try moved.snapshot.contents(identity: .test())
        store.removeAll()

        store.write(moved, contents)

        XCTAssertEqual(store.tokens, [])
        XCTAssertEqual(files, [])
    }

    func testFilesGoWithTheStore() throws {
        var store: SnapshotStore? = try store(memory: 0, files: 1 << 20)
        try store?.keep(snapshot(2))
        var fork = store
        store = nil
        XCTAssertEqual(files.count, 1)
        XCTAssertNotNil(fork?.nearest(within: try snapshot(2).state.steps))
        fork = nil

        XCTAssertEqual(files, [])
    }
}

extension SnapshotStore {
    /// Adds a snapshot, and moves snapshots above the limit in memory to files.
    fileprivate mutating func keep(_ snapshot: ConversationSnapshot) throws {
        add(snapshot)
        while let moved = takeExcess() {
            write(moved, try moved.snapshot.contents(identity: .test()))
        }
    }
}

extension ConversationIdentity {
    static func test(model: String = "tiny") throws -> ConversationIdentity {
        ConversationIdentity(
            model: model, modelDigest: "digest of \(model)",
            caches: H2OCaches(configuration: try H2OConfiguration(maxSize: 64)),
            templateDigest: "0", vocabulary: nil)
    }
}

final class SnapshotThinningTests: XCTestCase {
    /// The moments that remain of `count` moments that were added one after the other.
    private func left(of count: Int, atMost most: Int) -> [Int] {
        var moments = [Int]()
        for moment in 1 ... count {
            moments.append(moment)
            if moments.count > most { moments.remove(at: SnapshotThinning.victim(of: moments)) }
        }
        return moments
    }

    func testDistancesGrowWithTheAge() {
        for most in [4, 8] {
            for count in most ... 200 {
                let moments = left(of: count, atMost: most)
                let distances = zip(moments, moments.dropFirst()).map { $1 - $0 }
                XCTAssertEqual(distances, distances.sorted(by: >), "\(moments)")
            }
        }
        XCTAssertEqual(left(of: 50, atMost: 8), [16, 32, 40, 44, 46, 48, 49, 50])
    }
}
