import Foundation
import MLX
import MLXLMCommon

/// A cache that knows how much each of its rows matters, and keeps those that do.
///
/// A model that calls `attentionWithCacheUpdate` is routed to
/// `attend(queries:keys:values:scale:mask:)`. One that calls `update(keys:values:)` and
/// attends itself computes correctly too, but no scores arrive from it.
///
/// B batch, Hkv KV heads, C the configuration's `maxSize`. A *position* is a token's
/// index in the sequence, a *row* its place in the buffer; after eviction they differ.
package protocol H2OScoreTracking: RoutedAttentionCache {
    /// What a saved cache of this class says of itself first: its kind and version.
    static var format: String { get }

    var configuration: H2OConfiguration { get }

    /// Rows in use: at most C, and more only between an `update(keys:values:)` with several
    /// tokens and what follows it.
    var length: Int { get }

    /// float32 `[B, Hkv, C]`, -1 where a row was not yet observed; nil while empty.
    var scores: MLXArray? { get }

    /// int32 `[B, Hkv, C]`, -1 where a row is empty; nil while the cache is empty.
    var positions: MLXArray? { get }

    /// bool `[B, Hkv, C]`, the rows that a recall chose and that stay until the next one; nil
    /// without recall or while the cache is empty.
    var held: MLXArray? { get }

    /// What recall did; nil without recall.
    var recalled: H2ORecallStatistics? { get }

    /// A cache from the `state` and `metaState` of another.
    ///
    /// - Parameter archive: the conversation's folder; its layer's folder in it has the name that
    ///   it had. nil where the archive is in memory: what was saved names no folder
    /// - Throws: ``H2OCacheError`` when they are not those of such a cache
    init(state: [MLXArray], metaState: [String], archive: URL?) throws
}

extension H2OScoreTracking {
    /// Ends an `update(keys:values:)` whose attention was computed elsewhere: the new
    /// tokens get their positions, and what overflows C is evicted. The next write does
    /// this by itself.
    package func settle() {
        (self as? any H2OCacheImplementation)?.layer.core.settle()
    }

    /// A cache from the `state` and `metaState` of another, whose archive is in memory.
    ///
    /// - Throws: ``H2OCacheError`` when they are not those of such a cache
    package init(state: [MLXArray], metaState: [String]) throws {
        try self.init(state: state, metaState: metaState, archive: nil)
    }

    /// Whether a saved cache that says this of itself is of this class.
    static func reads(_ saved: String?) -> Bool {
        saved == format || saved == format + SavedHeader.recalls
    }
}

extension H2OScoreTracking {
    /// Bytes of the buffers of keys and values, spare rows included.
    package var rowBytes: Int { numbers?.rowBytes ?? 0 }

    /// Bytes of scores, positions and what else decides what is evicted.
    package var ledgerBytes: Int { numbers?.ledgerBytes ?? 0 }

    private var numbers: MLXFast.H2OLayerNumbers? {
        (self as? any H2OCacheImplementation)?.layer.core.numbers
    }
}

extension [any KVCache] {
    /// These caches of a conversation again, for another one; see ``MLXLMCommon/KVCache/copied(archive:)``.
    ///
    /// - Throws: ``H2OCacheError/archive(_:)``
    package func copied(archive: URL? = nil) throws -> [any KVCache] {
        let copies = try map { try $0.copied(archive: archive) }
        H2OCaches.join(copies)
        return copies
    }
}

extension KVCache {
    /// This cache again, with nothing outstanding. Rows are copied when one of the two writes
    /// next; segments of an archive in memory are shared.
    ///
    /// - Parameter archive: where an archive in files goes on, a folder of the conversation's
    ///   with the same files. nil keeps what is archived from now on in memory
    /// - Throws: ``H2OCacheError/archive(_:)`` where the folder has not the archive
    package func copied(archive: URL? = nil) throws -> any KVCache {
        if let own = self as? any H2OCacheImplementation {
            own.settle()
            guard let archive, own.layer.core.savedArchive?.mark != nil else { return own.copy() }
            return try type(of: own).init(
                state: own.state, metaState: own.metaState, archive: archive)
        }
        guard let list = copy() as? CacheList else { return copy() }
        var failure: (any Error)?
        list.mapChildren { child in
            do {
                return try child.copied(archive: archive)
            } catch {
                failure = error
                return child
            }
        }
        if let failure { throw failure }
        return list
    }

    /// Bytes of its buffers, those of an archive left out: copies share its segments.
    package var byteCount: Int {
        if self is CacheList { return leaves.map(\.byteCount).reduce(0, +) }
        if let own = self as? any H2OScoreTracking { return own.rowBytes + own.ledgerBytes }
        return innerState().map(\.nbytes).reduce(0, +)
    }
}

extension KVCache {
    /// The caches of a layer's list, or this one alone.
    package var leaves: [any KVCache] {
        guard let list = self as? CacheList else { return [self] }
        var leaves = [any KVCache]()
        list.mapChildren { child in
            leaves.append(child)
            return child
        }
        return leaves
    }
}

/// What recall did and what its archive takes.
package struct H2ORecallStatistics: Hashable, Codable, Sendable {
    /// Rows that came back, of all heads.
    package fileprivate(set) var rows: Int
    /// Seconds that it took to choose and to bring them.
    package fileprivate(set) var seconds: Double
    /// Bytes of the archive now, in memory or in files.
    package fileprivate(set) var archiveBytes: Int

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
