import Foundation
import H2OKit
import H2OSessions
import H2OTestModels
import XCTest

final class SessionSavingTests: FolderTestCase {
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
        for hasLists in [false, true] {
            try FileManager.default.removeItem(at: folder)
            let (first, second) = (try fixture(), try fixture())
            for fixture in [first, second] { fixture.model.hasLists = hasLists }
            let original = try await saved(first)

            let restored = try await H2OSession.restore(
                from: folder, model: second.makeModel(), options: options)

            let (before, after) = (await original.transcript, await restored.transcript)
            XCTAssertEqual(before, after)
            let (ours, theirs) = (
                try await restored.respond(to: "four"), try await original.respond(to: "four")
            )
            XCTAssertEqual(ours.content, theirs.content)
            XCTAssertEqual(ours.usage.readTokens, theirs.usage.readTokens)
            XCTAssertGreaterThan(ours.usage.cachedTokens, 0)
            let (kept, expected) = (await restored.keptPositions, await original.keptPositions)
            XCTAssertEqual(kept, expected)
            XCTAssertGreaterThan(kept.count, kept.shares.filter { $0 > 0 }.count)
        }
    }

    func testWithOtherToolsItsTokensAreCompared() async throws {
        let original = try await saved(fixture())

        var other = try fixture()
        other.chat = ChatFacts(tools: true, stops: [EchoModel.stop])
        let restored = try await H2OSession.restore(
            from: folder, model: other.makeModel(), tools: [adder()], options: options)

        // The test's template does not write tools, so other tools change nothing.
        let (ours, theirs) = (
            try await restored.respond(to: "four").usage,
            try await original.respond(to: "four").usage
        )
        XCTAssertEqual(ours.cachedTokens, theirs.cachedTokens)
        XCTAssertEqual(ours.readTokens, theirs.readTokens)
    }

    /// Saves a session after each of six turns, and returns the number of tokens seen after each
    /// turn.
    private func savedEachTurn(_ fixture: SessionFixture) async throws -> [Int] {
        let session = fixture.makeSession()
        var tokensSeen = [Int]()
        for prompt in ["one", "two", "three", "four", "five", "six"] {
            _ = try await session.respond(to: prompt)
            try await session.save(to: folder)
            tokensSeen.append(await session.tokensSeen)
        }
        return tokensSeen
    }

    func testARestoredConversationReturnsToEarlierTurns() async throws {
        let tokensSeen = try await savedEachTurn(fixture())
        for turns in [5, 2] {
            let restored = try await H2OSession.restore(
                from: folder, model: fixture().makeModel(), options: options)
            let expected = try fixture().makeSession()
            for prompt in ["one", "two", "three", "four", "five"].prefix(turns) {
                _ = try await expected.respond(to: prompt)
            }
            try await restored.keep(1 + 2 * turns)

            let response = try await restored.respond(to: "other")

            XCTAssertEqual(response.usage.cachedTokens, tokensSeen[turns - 1])
            assertEqual(try await expected.respond(to: "other").content, response.content)
        }
    }

    func testEarlierTurnsAreBoundedByTheBytesInFiles() async throws {
        var fixture = try fixture()
        fixture.snapshots = H2OSnapshotLimits(memory: 0, files: 30_000)
        _ = try await savedEachTurn(fixture)
        let files = try FileManager.default.contentsOfDirectory(
            at: folder, includingPropertiesForKeys: nil)

        let turns = files.filter { $0.lastPathComponent.hasPrefix("turn-") }
        let bytes = try turns.map { try Data(contentsOf: $0).count }.reduce(0, +)
        XCTAssertLessThanOrEqual(bytes, 30_000)
        XCTAssertGreaterThan(turns.count, 1)
        XCTAssertLessThan(turns.count, 5)
        XCTAssertEqual(files.count, turns.count + 1)
    }

    func testSavedTwiceItHasNoEarlierTurn() async throws {
        let session = try await saved(fixture())

        try await session.save(to: folder)

        XCTAssertEqual(
            try FileManager.default.contentsOfDirectory(atPath: folder.path),
            ["conversation.safetensors"])
    }

    func testLeavingTheAppDoesNotWaitForAFileThatIsWritten() async throws {
        let fixture = try fixture()
        let session = try await saved(fixture)
        let begun = ContinuousClock.now
        var waited = [Bool]()
        // Saves until the file was once seen while it was being written.
        while waited.isEmpty, begun.duration(to: .now) < .seconds(60) {
            let saved = Recorder<Void>()
            let watch = Task.detached { [folder] in
                var waited = [Bool]()
                while saved.entries.isEmpty {
                    let names = try FileManager.default.contentsOfDirectory(atPath: folder.path)
                    guard names.contains(where: { $0.hasSuffix(".new.safetensors") }) else {
                        continue
                    }
                    waited.append(!fixture.background.close(within: 0))
                    fixture.background.open()
                }
                return waited
            }
            try await session.save(to: folder)
            saved.add(())
            waited = try await watch.value
        }
        XCTAssertFalse(waited.isEmpty)
        XCTAssertFalse(waited.contains(true))
    }

    private var names: Set<String> {
        get throws { Set(try FileManager.default.contentsOfDirectory(atPath: folder.path)) }
    }

    private func make(folders: [String], files: [String]) throws {
        for name in folders {
            try FileManager.default.createDirectory(
                at: folder.appending(path: name), withIntermediateDirectories: true)
            try Data().write(to: folder.appending(path: "\(name)/a.jpg"))
        }
        for name in files { try Data([7]).write(to: folder.appending(path: name)) }
    }

    func testASaveDeletesOnlyWhatItWrote() async throws {
        let (one, two, three) = (UUID().uuidString, UUID().uuidString, UUID().uuidString)
        let folders = ["archive-photos", "archive-", "archive-\(one).zip", "conversation.\(one)"]
        let files = [
            "archive-2025.zip", "archive-\(two)", "conversation.new.safetensors",
            "conversation.mine.new.safetensors", "turn-1.safetensors", "turn-000000001.txt",
        ]
        try make(folders: folders, files: files)
        try FileManager.default.createSymbolicLink(
            at: folder.appending(path: "archive-\(three)"),
            withDestinationURL: folder.appending(path: "archive-photos"))
        let others = try names
        // What a save leaves if its process ends.
        try make(
            folders: ["archive-\(one)"], files: ["conversation.\(one).new.safetensors"])

        let session = try await saved(fixture())
        try await session.save(to: folder)

        XCTAssertEqual(try names, others.union(["conversation.safetensors"]))
        for name in folders {
            XCTAssertNotNil(try? Data(contentsOf: folder.appending(path: "\(name)/a.jpg")), name)
        }
    }

    func testAFullDiskKeepsTheSavedConversation() async throws {
        let archives = folder.appending(path: "../\(UUID().uuidString)").standardized
        defer { try? FileManager.default.removeItem(at: archives) }
        for fixture in [
            try fixture(), try SessionFixture.recalling(archives: archives, inFiles: true),
        ] {
            try FileManager.default.removeItem(at: folder)
            let session = try await saved(fixture)
            let (messages, before) = (await session.transcript, try names)
            _ = try await session.respond(to: "four")

            try await withFilesUpTo(4096) {
                await assertThrows(try await session.save(to: folder)) { _ in }
            }

            let lost = before.subtracting(try names)
            XCTAssertEqual(lost, [])
            XCTAssertTrue(
                try names.subtracting(before).isSubset(of: ["turn-000000001.safetensors"]))
            let restored = try await H2OSession.restore(
                from: folder, model: fixture.makeModel(), options: options)
            assertEqual(await restored.transcript, messages)
        }
    }

    /// Lets files of this process grow to a number of bytes only, as on a full disk.
    private func withFilesUpTo(_ bytes: Int, _ work: () async throws -> Void) async throws {
        #if canImport(Darwin)
            let kind = RLIMIT_FSIZE
        #else
            let kind = __rlimit_resource_t(RLIMIT_FSIZE.rawValue)
        #endif
        let handler = signal(SIGXFSZ, SIG_IGN)
        var limit = rlimit()
        getrlimit(kind, &limit)
        let before = limit
        limit.rlim_cur = rlim_t(bytes)
        setrlimit(kind, &limit)
        defer {
            var before = before
            setrlimit(kind, &before)
            signal(SIGXFSZ, handler)
        }
        try await work()
    }

    func testSavesAtOnceLeaveAWholeConversation() async throws {
        let archives = folder.appending(path: "../\(UUID().uuidString)").standardized
        defer { try? FileManager.default.removeItem(at: archives) }
        let folder = folder
        try await withThrowingTaskGroup(of: Void.self) { group in
            for number in 0 ..< 3 {
                let session = try SessionFixture.recalling(archives: archives, inFiles: true)
                    .makeSession()
                group.addTask {
                    for turn in 0 ..< 6 {
                        _ = try await session.respond(to: "turn \(turn) of session \(number)")
                        try await session.save(to: folder)
                        _ = try await H2OSession.restore(from: folder, model: session.model)
                    }
                }
            }
            try await group.waitForAll()
        }
        let left = try names.filter { !$0.hasPrefix("turn-") }
        XCTAssertEqual(left.count, 2, "\(left)")
    }

    func testWhatIsNotAFileIsRefusedBeforeItIsRead() async throws {
        let archives = folder.appending(path: "../\(UUID().uuidString)").standardized
        defer { try? FileManager.default.removeItem(at: archives) }
        let fixture = try SessionFixture.recalling(archives: archives, inFiles: true)
        let session = fixture.makeSession()
        for _ in 0 ..< 3 {
            _ = try await session.respond(to: String(repeating: "tell me more. ", count: 60))
        }
        try await session.save(to: folder)
        let archive = try XCTUnwrap(names.first { $0.hasPrefix("archive-") }) + "/layer-000"
        let segments = try FileManager.default.contentsOfDirectory(
            atPath: folder.appending(path: archive).path)
        let segment = try XCTUnwrap(segments.first { $0.hasSuffix(".safetensors") })
        for name in ["conversation.safetensors", "\(archive)/manifest", "\(archive)/\(segment)"] {
            let file = folder.appending(path: name)
            let content = try Data(contentsOf: file)
            for replace in [Self.pipe, Self.device, Self.folder] {
                try FileManager.default.removeItem(at: file)
                try replace(file)
                await assertThrows(
                    try await H2OSession.restore(from: folder, model: fixture.makeModel())
                ) { _ in }
            }
            try FileManager.default.removeItem(at: file)
            try content.write(to: file)
        }
        let turn = folder.appending(path: "turn-000000001.safetensors")
        try Self.pipe(turn)
        _ = try await H2OSession.restore(from: folder, model: fixture.makeModel())
        await assertThrows(try await H2OSession.restore(from: turn, model: fixture.makeModel())) {
            _ in
        }
    }

    private static func pipe(_ file: URL) throws { XCTAssertEqual(mkfifo(file.path, 0o600), 0) }

    private static func device(_ file: URL) throws {
        try FileManager.default.createSymbolicLink(
            at: file, withDestinationURL: URL(filePath: "/dev/zero"))
    }

    private static func folder(_ file: URL) throws {
        try FileManager.default.createDirectory(at: file, withIntermediateDirectories: false)
    }

    func testAFileThatIsLongerThanItsArraysOrThanMemoryIsRefusedBeforeItsEndIsRead() async throws {
        let session = try await saved(fixture())
        let data = try Data(contentsOf: file)
        for size in [UInt64(data.count + 1), 1 << 30, 1 << 42] {
            let handle = try FileHandle(forUpdating: file)
            try handle.truncate(atOffset: size)  // takes no room
            try handle.close()
            await assertThrows(
                try await H2OSession.restore(
                    from: file.deletingLastPathComponent(), model: session.model)
            ) { XCTAssertTrue(size > 1 << 40 ? $0 is CocoaError : $0 is H2OCacheError) }
        }
    }

    func testAnotherPolicyOrTemplateIsRefusedByName() async throws {
        _ = try await saved(fixture())

        let others = [try fixture(maxSize: 64), try fixture(hasTemplate: false)]
        var refusals = [H2OCacheError?]()
        for fixture in others {
            await assertThrows(
                try await H2OSession.restore(from: folder, model: fixture.makeModel())
            ) { refusals.append($0 as? H2OCacheError) }
        }

        guard case .otherSettings(let found, let expected, file)? = refusals[0] else {
            return XCTFail("\(refusals)")
        }
        XCTAssertTrue(found.contains(#""max_size":32"#), found)
        XCTAssertTrue(expected.contains(#""max_size":64"#), expected)
        XCTAssertEqual(refusals[1], .otherTemplate(file: file))
    }

    /// Writes the saved state again with other values and the right digest.
    private func rewrite(
        _ identity: ConversationIdentity, details: [String: String] = [:],
        _ change: (inout [String: Any]) -> Void
    ) throws {
        let saved = try SnapshotFile(file, identity: identity)
        let encoded = try JSONEncoder().encode(saved.state)
        var fields = try XCTUnwrap(
            JSONSerialization.jsonObject(with: encoded) as? [String: Any])
        change(&fields)
        var head = try saved.head()
        head.state = try JSONDecoder().decode(
            ConversationState.self, from: JSONSerialization.data(withJSONObject: fields))
        try SnapshotFile.computed(
            head, identity: identity, details: saved.details.merging(details) { $1 }
        ).write(to: file)
    }

    private func assertDamaged(line: UInt = #line) async throws {
        var fixture = try fixture()
        fixture.vocabulary = 1000
        await assertThrows(
            try await H2OSession.restore(from: folder, model: fixture.makeModel()), line: line
        ) {
            guard case .damaged? = $0 as? H2OCacheError else {
                return XCTFail("\($0)", line: line)
            }
        }
    }

    func testAStateThatLiesIsRefused() async throws {
        let identity = try await saved(fixture()).model.loaded.identity
        let data = try Data(contentsOf: file)
        let lies: [(inout [String: Any]) -> Void] = [
            { $0["unread"] = [99_999_999_999] },
            { $0["unread"] = [2_000_000_000] },
            { $0["unread"] = [-5] },
            { $0["chain"] = ["count": -1, "digest": "0"] },
            { $0["steps"] = "AAAAAA==" },
            { $0["steps"] = "AQAAAA==" },
            { $0["steps"] = "////fw==" },
            { $0["steps"] = "" },
            { $0["chunks"] = [Int.max, Int.max] },
            { $0["chunks"] = [-1] },
            { $0["beforeThoughts"] = Self.point(count: 1 << 62) },
            { $0["beforeThoughts"] = Self.point(count: -1) },
            { $0["beforeThoughts"] = Self.point(unread: [2_000_000_000]) },
            { $0["pinned"] = [-3, 2] },
            { $0["pinned"] = [0, 1_000_000] },
        ]
        for lie in lies {
            try data.write(to: file)
            try rewrite(identity, lie)
            try await assertDamaged()
        }
    }

    private static func point(count: Int = 0, unread: [Int] = []) -> [String: Any] {
        [
            "count": count, "chain": ["count": 1, "digest": "0"], "unread": unread,
            "chunks": [Int](), "ended": false, "isCutOff": false, "hasThoughts": false,
            "beforeThoughts": [Int](),
        ]
    }

    func testEarlierStatesThatLieAreRefused() async throws {
        let identity = try await saved(fixture()).model.loaded.identity
        for points in [Self.point(count: 5), Self.point(count: 1 << 62), Self.point(unread: [-1])] {
            let data = try JSONSerialization.data(withJSONObject: [points])
            try rewrite(identity, details: ["points": String(decoding: data, as: UTF8.self)]) { _ in
            }
            try await assertDamaged()
        }
    }

    func testArchivesOutsideOfTheFolderAreNotRead() async throws {
        let identity = try await saved(fixture()).model.loaded.identity
        let outside = folder.appending(path: "../outside-\(UUID().uuidString)").standardized
        let link = "archive-\(UUID().uuidString)"
        try FileManager.default.createDirectory(at: outside, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(at: outside) }
        try FileManager.default.createSymbolicLink(
            at: folder.appending(path: link), withDestinationURL: outside)
        for name in ["../\(outside.lastPathComponent)", link, "archive-", "archive-/.."] {
            try rewrite(identity, details: ["archive": name]) { _ in }
            try await assertDamaged()
        }
    }

    func testFilesWithNumbersThatNoTurnHasAreLeftOut() async throws {
        let original = try await saved(fixture())
        for number in ["9999999999", "9223372036854775807", "-00000001", "x"] {
            try FileManager.default.copyItem(
                at: file, to: folder.appending(path: "turn-\(number).safetensors"))
        }
        try FileManager.default.copyItem(
            at: file, to: folder.appending(path: "turn-999999999.safetensors"))

        let restored = try await H2OSession.restore(
            from: folder, model: original.model, options: options)
        _ = try await restored.respond(to: "four")
        try await restored.save(to: folder)
        _ = try await H2OSession.restore(from: folder, model: original.model)
    }
}
