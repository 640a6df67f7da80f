/// What recall did and what its archive takes.
public struct H2ORecallStatistics: Hashable, Codable, Sendable {
    /// Rows that came back, of all heads.
    public internal(set) var rows: Int
    /// Seconds that it took to choose and to bring them.
    public internal(set) var seconds: Double
    /// Bytes of the archive now, in memory or in files.
    public internal(set) var archiveBytes: Int

    package init(rows: Int = 0, seconds: Double = 0, archiveBytes: Int = 0) {
        self.rows = rows
        self.seconds = seconds
        self.archiveBytes = archiveBytes
    }
}

extension H2ORecallStatistics {
    /// The sum of all caches with recall, nil if there is none.
    package init?(_ caches: [any H2OScoreTracking]) {
        let all = caches.compactMap(\.recalled)
        guard !all.isEmpty else { return nil }
        self = all.reduce(into: H2ORecallStatistics()) { sum, each in
            sum.rows += each.rows
            sum.seconds += each.seconds
            sum.archiveBytes += each.archiveBytes
        }
    }

    /// Rows and seconds since an earlier moment; the bytes are those of now.
    package func since(_ earlier: H2ORecallStatistics?) -> H2ORecallStatistics {
        guard let earlier else { return self }
        return H2ORecallStatistics(
            rows: rows - earlier.rows, seconds: seconds - earlier.seconds,
            archiveBytes: archiveBytes)
    }

    /// Rows and seconds of both; the bytes are those of the later one.
    package static func + (earlier: Self, later: Self) -> Self {
        H2ORecallStatistics(
            rows: earlier.rows + later.rows, seconds: earlier.seconds + later.seconds,
            archiveBytes: later.archiveBytes)
    }
}
