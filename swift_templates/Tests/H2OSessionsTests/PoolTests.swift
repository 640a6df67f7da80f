import Foundation
import H2OKit
import H2OSessions
import XCTest

/// Tests the conversations of callers whose requests do not name a conversation.
final class PoolTests: XCTestCase {
    private let plan = MemoryPlan(weights: 0, caches: 1 << 20, prefill: 0, bufferCache: 0)
    private let options = H2OSession.Options(sampling: .greedy, maxTokens: 4)

    /// Lets two conversations take turns, and returns the cached tokens of each turn.
    private func turns(of pool: ConversationPool) async throws -> [Int] {
        try await replies(of: pool).map(\.usage.cachedTokens)
    }

    /// Lets two conversations take turns, and returns the reply of each turn.
    private func replies(
        of pool: ConversationPool, turns: Int = 2
    ) async throws -> [H2OSession.Response<String>] {
        var transcripts = ["one thing", "another matter"].map { [H2OMessage.user($0)] }
        var replies = [H2OSession.Response<String>]()
        for _ in 1 ... turns {
            for index in transcripts.indices {
                let response = try await pool.respond(to: transcripts[index], options: options)
                replies.append(response)
                transcripts[index] += [response.message, .user("tell me more of it")]
            }
        }
        return replies
    }

    /// - Parameter room: the free bytes, in addition to the plan and to the reserve for the app
    private func pool(room: Int, maxSize: Int = 256) throws -> ConversationPool {
        var fixture = try SessionFixture(maxSize: maxSize)
        (fixture.plan, fixture.snapshots) = (plan, .none)
        fixture.free = plan.total + LoadedModel.reserve + room
        return ConversationPool(fixture.makeModel())
    }

    func testConversationsAreKeptBesideEachOtherWhereThereIsMemoryForTheirCaches() async throws {
        let cached = try await turns(of: pool(room: 2 * plan.caches))
        XCTAssertEqual(cached[..<2], [0, 0])
        XCTAssertTrue(cached[2...].allSatisfy { $0 > 0 }, "\(cached)")
    }

    func testWithoutMemoryForTheirCachesOneConversationIsKept() async throws {
        let cached = try await turns(of: pool(room: -plan.caches))
        XCTAssertEqual(cached, [0, 0, 0, 0], "the other conversation's caches took the memory")
    }

    func testMemoryChangesNoReply() async throws {
        var texts = [[String]]()
        for room in [2 * plan.caches, -plan.caches] {
            let pool = try pool(room: room, maxSize: 24)
            texts.append(try await replies(of: pool, turns: 4).map(\.content))
        }
        XCTAssertEqual(texts[0], texts[1])
    }

    func testAWarningReleasesConversationsThatNoRequestUses() async throws {
        let warning = Notification.Name("h2o.warning.\(UUID().uuidString)")
        var fixture = try SessionFixture(maxSize: 256)
        fixture.pressure = MemoryPressure([warning])
        let model = fixture.makeModel()
        let pool = ConversationPool(model)
        let first = try await pool.respond(to: [.user("hi")], options: options)
        let transcript = [H2OMessage.user("hi"), first.message, .user("more")]
        XCTAssertEqual(fixture.model.lastCaches.count, 2, "two layers")

        NotificationCenter.default.post(name: warning, object: nil)

        assertEqual(try await holdsOnceReleased { fixture.model.lastCaches.isEmpty }, true)
        let usage = try await pool.respond(to: transcript, options: options).usage
        XCTAssertEqual(usage.cachedTokens, 0, "the conversation is read again")
    }

    func testARequestThatIsAnsweredKeepsItsConversation() async throws {
        let fixture = try SessionFixture(maxSize: 256)
        let model = fixture.makeModel()
        let pool = ConversationPool(model)
        let (calls, called) = AsyncStream<Void>.makeStream()
        fixture.model.onCall = { called.yield() }
        let reply = Task {
            try await pool.respond(
                to: [.user("hi")], options: H2OSession.Options(sampling: .greedy, maxTokens: 50))
        }
        for await _ in calls { break }
        await model.releaseMemory()
        let usage = try await reply.value.usage
        XCTAssertEqual(usage.generatedTokens, 50)
    }
}
