import Cmlx

/// What the H2O cache's functions are told about a cache. In the shapes: B batch, Hkv
/// KV heads, C `maxSize`, Dk the head dim of keys. A *position* is a token's index in
/// the sequence, a *row* its place in the buffer.
extension MLXFast {

    /// How rows are stored: as they come, or as the words, scales and biases that
    /// `quantized(_:groupSize:bits:)` makes of them.
    ///
    /// With `recentBits` the newest `recentBudget` tokens lie in a ring at that precision:
    /// the token of position p in slot `p % recentBudget`, until as many newer ones have
    /// come. All others are in a pool. The ledger's rows are the pool's, then the ring's.
    public struct H2ORowFormat: Hashable, Sendable {
        /// 4 or 8; 16 for keys as they are.
        public var keyBits: Int
        /// 4 or 8; 16 just where keys have 16.
        public var valueBits: Int
        /// 32, 64 or 128 elements share a scale and a bias.
        public var groupSize: Int
        /// Of keys and values, which scales and biases have too.
        public var dtype: DType
        /// Of the ring: 4, 8 or 16; nil for rows without a ring.
        public var recentBits: Int?
        /// Whether rows hold keys and values that were rotated, which loses less where bits
        /// are few. What goes in and comes out is not rotated.
        public var isRotated: Bool

        public init(
            keyBits: Int, valueBits: Int, groupSize: Int = 64, dtype: DType = .float32,
            recentBits: Int? = nil, isRotated: Bool = false
        ) {
            self.keyBits = keyBits
            self.valueBits = valueBits
            self.groupSize = groupSize
            self.dtype = dtype
            self.recentBits = recentBits
            self.isRotated = isRotated
        }

        /// Keys and values as they come.
        public static var dense: H2ORowFormat { H2ORowFormat(keyBits: 16, valueBits: 16) }
    }

    /// The buffers of a cache; those of quantized rows are uint32.
    public struct H2ORows {
        /// `[B, Hkv, capacity, its row]`.
        public var pool: MLXArray
        /// The same, if the format has a ring; a chunk stands behind the old rows until its
        /// attention.
        public var ring: MLXArray?

        public init(pool: MLXArray, ring: MLXArray? = nil) {
            self.pool = pool
            self.ring = ring
        }
    }

    /// What is known about each row of a cache.
    public struct H2OLedger {
        /// float32 `[B, Hkv, C]`, -1 where not yet observed.
        public var scores: MLXArray
        /// int32 `[B, Hkv, C]`, -1 where the row is empty.
        public var positions: MLXArray
        /// float32 `[B, Hkv, C]`.
        public var novelty: MLXArray
        /// float32 `[B, Hkv, Dk]`, the sum of all unit keys so far.
        public var keySum: MLXArray
        /// int32 `[B, Hkv]`, the row that the next token takes.
        public var victim: MLXArray
        /// bool `[B, Hkv, C]`, the rows that no eviction takes; nil in a cache without recall.
        public var held: MLXArray?

        public init(
            scores: MLXArray, positions: MLXArray, novelty: MLXArray, keySum: MLXArray,
            victim: MLXArray, held: MLXArray? = nil
        ) {
            self.scores = scores
            self.positions = positions
            self.novelty = novelty
            self.keySum = keySum
            self.victim = victim
            self.held = held
        }
    }
}
