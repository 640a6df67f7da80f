import H2OSessions
import XCTest

/// Tests the rule by which prompts are cut. Python's tests read the same table
/// (tests/h2o_py/test_prompts.py).
final class PromptCutsTests: XCTestCase {
    /// In each line: the most tokens of a chunk; the tokens that the caches have read; all tokens;
    /// the tokens at the end that are read one by one; where chunks end; and the chunks.
    static let table = """
        chunk read all alone ends : chunks
        512 0 1 1 : 1
        512 0 2 1 : 1 1
        512 0 512 1 : 511 1
        512 0 513 1 : 512 1
        512 0 514 1 : 512 1 1
        512 0 1483 1 : 512 512 458 1
        512 0 1483 1 100 : 100 512 512 358 1
        512 0 1483 1 1000 : 512 488 482 1
        512 0 100 1 99 : 99 1
        512 0 100 1 100 : 99 1
        512 0 100 1 200 : 99 1
        512 40 100 1 40 : 59 1
        512 41 100 1 40 60 : 19 39 1
        4 0 12 1 10 3 : 3 4 3 1 1
        4 0 12 1 3 3 : 3 4 4 1
        4 0 12 3 11 3 : 3 4 2 1 1 1
        4 0 2 3 : 1 1
        4 5 5 1 :
        4 0 9 0 5 : 4 1 4
        1 0 3 1 : 1 1 1
        """

    func testEachPromptOfTheTableHasTheChunksOfTheTable() throws {
        for line in Self.table.split(separator: "\n").dropFirst() {
            let parts = line.split(separator: ":", omittingEmptySubsequences: false).map {
                $0.split(separator: " ").compactMap { Int($0) }
            }
            let (given, chunks) = (parts[0], parts[1])
            let cuts = PromptCuts(chunk: given[0], ends: Array(given[4...]), alone: given[3])
            XCTAssertEqual(cuts.lengths(from: given[1], to: given[2]), chunks, "\(line)")
        }
    }
}
