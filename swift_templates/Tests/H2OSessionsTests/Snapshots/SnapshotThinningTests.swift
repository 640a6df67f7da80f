import H2OSessions
import XCTest

final class SnapshotThinningTests: XCTestCase {
    /// The moments that are left of `count`, one made after the other.
    private func left(of count: Int, atMost most: Int) -> [Int] {
        var moments = [Int]()
        for moment in 1 ... count {
            moments.append(moment)
            if moments.count > most { moments.remove(at: SnapshotThinning.victim(of: moments)) }
        }
        return moments
    }

    func testTheNewestIsLeft() {
        for count in 1 ... 100 { XCTAssertEqual(left(of: count, atMost: 3).last, count) }
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
