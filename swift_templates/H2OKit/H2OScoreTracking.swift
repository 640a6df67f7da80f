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
public protocol H2OScoreTracking: RoutedAttentionCache {
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
    /// - Parameter archive: the conversation's folder, if it was moved; its layer's folder in
    ///   it has the name that it had. nil where the archive is in memory or where it was
    /// - Throws: ``H2OCacheError`` when they are not those of such a cache
    init(state: [MLXArray], metaState: [String], archive: URL?) throws
}

extension H2OScoreTracking {
    /// Ends an `update(keys:values:)` whose attention was computed elsewhere: the new
    /// tokens get their positions, and what overflows C is evicted. The next write does
    /// this by itself.
    package func settle() {
        (self as? any H2OCacheImplementation)?.core.settle()
    }

    /// A cache from the `state` and `metaState` of another, whose archive is where it was.
    ///
    /// - Throws: ``H2OCacheError`` when they are not those of such a cache
    public init(state: [MLXArray], metaState: [String]) throws {
        try self.init(state: state, metaState: metaState, archive: nil)
    }

    /// Whether a saved cache that says this of itself is of this class.
    static func reads(_ saved: String?) -> Bool {
        saved == format || saved == format + H2OCacheMetadata.recalls
    }
}
