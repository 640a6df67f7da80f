import Foundation
import MLX
import MLXLMCommon

/// A cache that scores its rows by attention, and keeps the most important ones.
///
/// `attentionWithCacheUpdate` sends a model's attention to
/// `attend(queries:keys:values:scale:mask:)`. A model that calls `update(keys:values:)` and
/// computes attention itself gets correct results too, but the cache receives no scores.
///
/// B batch, Hkv KV heads, C the configuration's `maxSize`. A *position* is a token's
/// index in the sequence, a *row* its place in the buffer; after eviction they differ.
package protocol H2OScoreTracking: RoutedAttentionCache {
    /// The first string of a saved cache of this class: its kind and version.
    static var format: String { get }

    var configuration: H2OConfiguration { get }

    /// Rows in use. They exceed C only between an `update(keys:values:)` with several tokens
    /// and their attention.
    var length: Int { get }

    /// float32 `[B, Hkv, C]`, -1 where a row was not yet observed; nil while empty.
    var scores: MLXArray? { get }

    /// int32 `[B, Hkv, C]`, -1 where a row is empty; nil while the cache is empty.
    var positions: MLXArray? { get }

    /// bool `[B, Hkv, C]`, the rows that a recall brought back and that stay until the next
    /// one; nil without recall or while the cache is empty.
    var held: MLXArray? { get }

    /// Figures of recall; nil without recall.
    var recalled: H2ORecallStatistics? { get }

    /// A cache from the `state` and `metaState` of another.
    ///
    /// - Parameter archive: the conversation's folder, in which the layer's folder has the same
    ///   name as when the cache was saved; nil for an archive in memory. A folder that the
    ///   saved cache names is never opened
    /// - Throws: ``H2OCacheError`` when they are not those of such a cache
    init(state: [MLXArray], metaState: [String], archive: URL?) throws
}

extension H2OScoreTracking {
    /// Finishes an `update(keys:values:)` whose attention was computed elsewhere: gives the new
    /// tokens their positions, and evicts the rows beyond C. The next write does this too.
    package func settle() {
        (self as? any H2OCacheImplementation)?.layer.core.settle()
    }

    /// A cache from the `state` and `metaState` of another, whose archive is in memory.
    ///
    /// - Throws: ``H2OCacheError`` when they are not those of such a cache
    package init(state: [MLXArray], metaState: [String]) throws {
        try self.init(state: state, metaState: metaState, archive: nil)
    }

    /// Whether a saved cache with these strings is of this class.
    static func reads(_ saved: String?) -> Bool {
        saved == format || saved == format + SavedHeader.recalls
    }
}

extension H2OScoreTracking {
    /// Bytes of the buffers of keys and values, including unused rows.
    package var rowBytes: Int { numbers?.rowBytes ?? 0 }

    /// Bytes of the ledger: scores, positions, novelty and the other arrays that eviction uses.
    package var ledgerBytes: Int { numbers?.ledgerBytes ?? 0 }

    private var numbers: MLXFast.H2OLayerNumbers? {
        (self as? any H2OCacheImplementation)?.layer.core.numbers
    }
}

extension [any KVCache] {
    /// Copies the caches of a conversation for another one; see
    /// ``MLXLMCommon/KVCache/copied(archive:)``.
    ///
    /// - Throws: ``H2OCacheError/archive(_:)``
    package func copied(archive: URL? = nil) throws -> [any KVCache] {
        let copies = try map { try $0.copied(archive: archive) }
        H2OCaches.join(copies)
        return copies
    }
}

extension KVCache {
    /// Copies this cache after settling its written tokens. Rows are copied when one of the two
    /// caches writes next. The copies share segments of an archive in memory.
    ///
    /// - Parameter archive: for an archive in files, a folder of the other conversation with
    ///   the same files, where the copy continues it. nil keeps newly archived tokens in memory
    /// - Throws: ``H2OCacheError/archive(_:)`` if the folder does not contain the archive
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

    /// Bytes of its buffers without the archive, whose segments copies share.
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

/// Figures of recall and its archive.
package struct H2ORecallStatistics: Hashable, Codable, Sendable {
    /// Rows that recall brought back, all heads together.
    package fileprivate(set) var rows: Int
    /// Seconds spent on choosing and bringing back rows.
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
    /// Adds up the figures of all caches with recall; nil if there is none.
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
