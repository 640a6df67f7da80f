import H2OSessions
import XCTest

final class CacheStepsTests: XCTestCase {
    private let ids = (0 ..< 2500).map { $0 * 7919 % 151_936 }

    /// Chunks of 300 tokens, each followed by 5 generated tokens.
    private func steps(_ count: Int) -> CacheSteps {
        var (steps, rest) = (CacheSteps(), ids.prefix(count))
        while !rest.isEmpty {
            steps.read(rest.prefix(300))
            rest.dropFirst(300).prefix(5).forEach { steps.write($0) }
            rest = rest.dropFirst(305)
        }
        return steps
    }

    func testTheyGiveBackWhatWasReadAndWritten() throws {
        for count in [0, 301, 1023, 1024, 1025, 2500] {
            let all = steps(count)
            XCTAssertEqual(all.count, count)
            XCTAssertEqual(all.ids, Array(ids.prefix(count)))
            XCTAssertEqual(all.suffix(7), Array(ids.prefix(count).suffix(7)))
            XCTAssertTrue(all.begins(ids))
            let data = try JSONEncoder().encode([all])
            XCTAssertEqual(try JSONDecoder().decode([CacheSteps].self, from: data), [all])
            let lengths = all.steps().map(\.ids.count)
            XCTAssertEqual(lengths.reduce(0, +), count)
            XCTAssertTrue(lengths.allSatisfy { $0 <= 300 })
            let generated = all.steps().filter {
                if case .generated = $0 { true } else { false }
            }
            XCTAssertEqual(generated.count, lengths.filter { $0 == 1 }.count
                - (count % 305 == 1 ? 1 : 0))
        }
    }

    func testABeginningIsRecognizedByItsTokensAndItsChunks() {
        let all = steps(2500)
        for count in [0, 300, 301, 305, 605, 1220, 1525] {
            XCTAssertTrue(all.hasStep(endingAt: count))
            XCTAssertTrue(all.starts(with: all.prefix(count)))
            XCTAssertEqual(all.prefix(count).steps() + all.steps(from: count), all.steps())
            var other = all.prefix(count)
            other.read(ids[count ..< count + 1])
            XCTAssertFalse(all.starts(with: other), "a chunk of one token")
        }
        XCTAssertFalse(all.hasStep(endingAt: 299))
        XCTAssertFalse(all.hasStep(endingAt: 2501))
        XCTAssertEqual(all.beforeLast, all.prefix(2440))
        XCTAssertEqual(all.prefix(301).beforeLast, all.prefix(300))
        var read = CacheSteps()
        read.read(ids.prefix(301))
        XCTAssertFalse(all.starts(with: read))
        XCTAssertTrue(read.begins(ids))
        XCTAssertFalse(read.begins(Array(ids.prefix(300))))
    }
}
