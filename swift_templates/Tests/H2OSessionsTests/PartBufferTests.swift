import H2OSessions
import XCTest

final class PartBufferTests: XCTestCase {
    func testPartsComeInTheirOrderAndThenTheEnd() async throws {
        let buffer = PartBuffer()
        for part in [H2OSession.Part.text("a"), .thought("b"), .text("c")] { buffer.add(part) }
        buffer.finish(.success(()))

        var parts = [H2OSession.Part]()
        while let part = try await buffer.next() { parts.append(part) }

        XCTAssertEqual(parts, [.text("a"), .thought("b"), .text("c")])
    }

    func testAReaderThatWaitsGetsTheNextPart() async throws {
        let buffer = PartBuffer()
        let reading = Task { try await buffer.next() }
        for _ in 0 ..< 100 { await Task.yield() }
        buffer.add(.text("a"))

        let part = try await reading.value
        XCTAssertEqual(part, .text("a"))
    }

    func testWhatNobodyReadsIsBoundedAndNothingIsLost() async throws {
        let buffer = PartBuffer()
        let words = (0 ..< 1000).map { "\($0) " }
        for word in words { buffer.add(.text(word)) }
        buffer.finish(.success(()))

        var parts = [H2OSession.Part]()
        while let part = try await buffer.next() { parts.append(part) }

        XCTAssertEqual(parts.count, PartBuffer.separate)
        XCTAssertEqual(parts.compactMap(\.text).joined(), words.joined())
    }

    func testAnErrorComesAfterWhatIsUnread() async throws {
        let buffer = PartBuffer()
        buffer.add(.text("a"))
        buffer.finish(.failure(H2OSessionError.busy))

        let part = try await buffer.next()
        XCTAssertEqual(part, .text("a"))
        await assertThrows(try await buffer.next()) {
            XCTAssertEqual($0 as? H2OSessionError, .busy)
        }
    }

    func testACanceledReaderGetsNothingMore() async throws {
        let buffer = PartBuffer()
        let reading = Task { try await buffer.next() }
        reading.cancel()

        let part = try await reading.value
        XCTAssertNil(part)
    }
}
