import MLX

/// The tokens of one write, and the cache just before it.
struct H2OStep {
    let tokens: Int
    /// Tokens seen before.
    let offset: Int
    /// Rows in use before.
    let length: Int

    /// Rows in use once the tokens were written and none was evicted yet.
    func lengthAfter(_ maxSize: Int) -> Int {
        tokens > 1 ? length + tokens : min(offset + tokens, maxSize)
    }
}

/// The rows of a cache in one way of storing them, and the two calls of a step.
///
/// In the shapes: B batch, Hq query heads, Hkv KV heads, L new tokens, Dk and Dv the head
/// dims of keys and values.
protocol H2ORows {
    /// Whether the newest tokens can be dropped again.
    static var canBeTrimmed: Bool { get }

    /// The arrays that stand before the ledger's in a saved cache.
    static var savedArrays: Int { get }

    /// All buffers `[B, Hkv, capacity, its row]`; none while the cache is empty.
    var buffers: [MLXArray] { get }

    /// Puts keys `[B, Hkv, L, Dk]` and values `[B, Hkv, L, Dv]` into the rows.
    mutating func write(
        keys: MLXArray, values: MLXArray, victim: MLXArray, step: H2OStep,
        policy: MLXFast.H2OPolicy, copy: Bool)

    /// The attention of queries `[B, Hq, L, Dk]`, if there are any, over the rows in use,
    /// and the ledger that follows.
    mutating func attend(
        _ attention: H2OAttention, ledger: MLXFast.H2OLedger, step: H2OStep,
        policy: MLXFast.H2OPolicy
    ) -> (output: MLXArray?, ledger: MLXFast.H2OLedger)

    /// Keys `[B, Hkv, N, Dk]` and values `[B, Hkv, N, Dv]` of all rows in use after a write.
    func fetch(after step: H2OStep, keyDim: Int, policy: MLXFast.H2OPolicy) -> (MLXArray, MLXArray)

    /// The ledger after the rows from `length` on were dropped.
    func trimmed(_ ledger: MLXFast.H2OLedger, to length: Int, policy: MLXFast.H2OPolicy)
        -> MLXFast.H2OLedger

    /// The arrays of a saved cache with `length` rows in use, as many as ``savedArrays``.
    func saved(length: Int) -> [MLXArray]

    /// Takes over saved arrays; nil empties the rows.
    mutating func restore(_ arrays: [MLXArray]?)

    /// Whether the buffers are those of a cache with so many rows in use.
    func fits(offset: Int, pending: Int, length: Int, policy: MLXFast.H2OPolicy) -> Bool

    /// How the rows are stored, as JSON in Python's names; nil where there is nothing to say.
    var description: String? { get }

    /// - Throws: ``H2OStateError``, `DecodingError`, ``H2OConfigurationError``
    mutating func restore(description: String?) throws
}

/// What a step's attention takes besides the cache. No queries: it was computed elsewhere.
struct H2OAttention {
    /// `[B, Hq, L, Dk]`.
    var queries: MLXArray?
    var scale: Float = 1
    var mask = MLXFast.ScaledDotProductAttentionMaskMode.none

    static var elsewhere: H2OAttention { H2OAttention() }
}
