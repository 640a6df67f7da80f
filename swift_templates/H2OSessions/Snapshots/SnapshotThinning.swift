/// Which of a row of snapshots goes first, so that the newest stay close to each other and the
/// distances grow with the age.
package enum SnapshotThinning {
    /// - Parameter moments: at which the snapshots were made, from 1 on, in order; two or more
    /// - Returns: the index of one, never the newest
    package static func victim(of moments: [Int]) -> Int {
        let newest = moments[moments.count - 1]
        /// The distance that would be left, compared with the age.
        func gap(_ index: Int) -> Double {
            let before = index > 0 ? moments[index - 1] : 0
            return Double(moments[index + 1] - before) / Double(newest - moments[index])
        }
        return moments.indices.dropLast().min { gap($0) < gap($1) } ?? 0
    }
}
