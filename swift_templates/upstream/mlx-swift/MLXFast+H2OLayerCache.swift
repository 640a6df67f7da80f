import Cmlx

/// The H2O cache of one layer in the C++ core. In the shapes: B batch, Hq query heads, Hkv KV
/// heads, L new tokens, N rows in use, C `maxSize`, Dk and Dv the head dims of keys and values. A
/// *position* is a token's index in the sequence, a *row* its place in the buffer.
extension MLXFast {

    /// How rows are stored: with the dtype of keys and values, or as the words, scales and biases
    /// of `quantized(_:groupSize:bits:)`.
    ///
    /// With `recentBits`, the newest `recentBudget` tokens are in a ring at that precision: the
    /// token of position p is in slot `p % recentBudget`, until `recentBudget` newer tokens have
    /// arrived. All others are in a pool. The ledger has the rows of the pool first, then the rows
    /// of the ring.
    public struct H2ORowFormat: Hashable, Sendable {
        /// Bits of a key's elements: 4 or 8; 16 stores keys in their own dtype.
        public var keyBits: Int
        /// Bits of a value's elements: 4 or 8; 16 only if `keyBits` is 16.
        public var valueBits: Int
        /// The number of elements that share a scale and a bias: 32, 64 or 128.
        public var groupSize: Int
        /// Bits of the ring: 4, 8 or 16; nil for rows without a ring.
        public var recentBits: Int?
        /// Whether the cache rotates keys and values before it stores them, which reduces the error
        /// of 4 bits. Arguments and results are not rotated.
        public var isRotated: Bool

        public init(
            keyBits: Int, valueBits: Int, groupSize: Int = 64, recentBits: Int? = nil,
            isRotated: Bool = false
        ) {
            self.keyBits = keyBits
            self.valueBits = valueBits
            self.groupSize = groupSize
            self.recentBits = recentBits
            self.isRotated = isRotated
        }

        /// Rows with the dtype of keys and values.
        public static var dense: H2ORowFormat { H2ORowFormat(keyBits: 16, valueBits: 16) }
    }

    /// The arrays by which a cache chooses the rows to evict.
    public struct H2OLedger {
        /// float32 `[B, Hkv, C]`, -1 if the row was not observed yet.
        public let scores: MLXArray
        /// int32 `[B, Hkv, C]`, -1 if the row is empty.
        public let positions: MLXArray
        /// int32 `[B, Hkv]`, the row that the next token overwrites.
        public let victim: MLXArray
        /// All arrays, in the order of a saved cache.
        public var arrays: [MLXArray] { [scores, positions, victim] }
    }

    /// Bytes of a cache, and figures of recall.
    public struct H2OLayerNumbers: Hashable, Sendable {
        /// Bytes of the rows' buffers, including spare rows.
        public let rowBytes: Int
        /// Bytes of the ledger.
        public let ledgerBytes: Int
        /// Bytes of the archive, in memory or in files; nil without an archive.
        public let archiveBytes: Int?
        /// Whether the archive is in files.
        public let isInFiles: Bool
        /// Bytes of the sketch of the archived keys, in memory.
        public let sketchBytes: Int
        /// Archived rows that were read, all heads together.
        public let archiveReads: Int
    }

    /// The cache of one layer: its rows, ledger and archive, and the rules that change them.
    ///
    /// Only one thread at a time may use it. A wrong shape is reported as an error of MLX, and leaves
    /// the cache unchanged.
    public final class H2OLayerCache {
        private let ctx: mlx_h2o_layer_cache

        private init(owning ctx: mlx_h2o_layer_cache) {
            self.ctx = ctx
        }

        deinit {
            mlx_h2o_layer_cache_free(ctx)
        }

        /// Creates an empty cache. If its first write cannot create the archive, the cache
        /// continues without recall; see ``MLXFast/h2oTell(_:)``.
        public convenience init(policy: H2OPolicy, format: H2ORowFormat) {
            var ctx = mlx_h2o_layer_cache()
            _ = withCConfig(policy, format) { mlx_h2o_layer_cache_new(&ctx, $0) }
            self.init(owning: ctx)
        }

        /// Restores a saved cache. Nothing in a saved cache is trusted: this checks everything
        /// before using it.
        ///
        /// - Parameters:
        ///   - arrays: the arrays that ``arrays(stream:)`` returned
        ///   - header: the ``header`` that belongs to them
        ///   - folder: the folder of the conversation's archive, if it is in files; the header
        ///     names none
        ///   - stream: stream or device to evaluate on
        /// - Throws: ``H2OError``
        public convenience init(
            restoring arrays: [MLXArray], header: String, folder: String? = nil,
            stream: StreamOrDevice = .default
        ) throws {
            var ctx = mlx_h2o_layer_cache()
            let arrays = new_mlx_vector_array(arrays)
            defer { mlx_vector_array_free(arrays) }
            try H2OError.throwing {
                mlx_h2o_layer_cache_restore(&ctx, header, arrays, folder, stream.ctx)
            }
            self.init(owning: ctx)
        }

        /// Returns an independent cache in the same state. Each of the two caches copies the rows at
        /// its next write. Both share the segments of the archive.
        public func copy() -> H2OLayerCache {
            var copy = mlx_h2o_layer_cache()
            mlx_h2o_layer_cache_copy(&copy, ctx)
            return H2OLayerCache(owning: copy)
        }

        /// Writes new tokens for attention that is computed elsewhere.
        ///
        /// - Parameters:
        ///   - keys: `[B, Hkv, L, Dk]`, after RoPE
        ///   - values: `[B, Hkv, L, Dv]`
        ///   - stream: stream or device to evaluate on
        /// - Returns: keys `[B, Hkv, N, Dk]` and values `[B, Hkv, N, Dv]` of all rows in use,
        ///   including the new tokens. The next write does not change these arrays
        public func write(
            keys: MLXArray, values: MLXArray, stream: StreamOrDevice = .default
        ) -> (MLXArray, MLXArray) {
            var (allKeys, allValues) = (mlx_array_new(), mlx_array_new())
            mlx_h2o_layer_cache_write(
                &allKeys, &allValues, ctx, keys.ctx, values.ctx, stream.ctx)
            return (MLXArray(allKeys), MLXArray(allValues))
        }

        /// Writes new tokens in place, attends to all rows in use, and chooses the next row to
        /// evict.
        ///
        /// - Parameters:
        ///   - queries: `[B, Hq, L, Dk]`
        ///   - keys: `[B, Hkv, L, Dk]`, after RoPE; nil for the tokens of the last write
        ///   - values: `[B, Hkv, L, Dv]`
        ///   - scale: factor of the logits, usually `1 / sqrt(Dk)`
        ///   - mask: an array must broadcast to `[B, Hq, L, N]`
        ///   - stream: stream or device to evaluate on
        /// - Returns: `[B, Hq, L, Dv]` in the queries' dtype
        public func attend(
            queries: MLXArray, keys: MLXArray?, values: MLXArray?, scale: Float,
            mask: ScaledDotProductAttentionMaskMode, stream: StreamOrDevice = .default
        ) -> MLXArray {
            var output = mlx_array_new()
            let none = mlx_array()
            mlx_h2o_layer_cache_attend(
                &output, ctx, queries.ctx, keys?.ctx ?? none, values?.ctx ?? none, scale,
                mask.mode, mask.mask?.ctx ?? none, none, stream.ctx)
            return MLXArray(output)
        }

        /// Completes a write whose attention was computed elsewhere, and evicts down to C rows.
        public func settle(stream: StreamOrDevice = .default) {
            mlx_h2o_layer_cache_settle(ctx, stream.ctx)
        }

        /// Removes the newest `count` tokens. Returns the number of removed tokens, which is 0
        /// after an eviction.
        public func trim(_ count: Int, stream: StreamOrDevice = .default) -> Int {
            var trimmed: Int32 = 0
            mlx_h2o_layer_cache_trim(&trimmed, ctx, Int32(clamping: count), stream.ctx)
            return Int(trimmed)
        }

        /// Makes the next write copy the rows, because other code still reads them.
        public func share() {
            mlx_h2o_layer_cache_share(ctx)
        }

        /// Moves the archive to files in a new folder; does nothing without an archive.
        ///
        /// - Throws: ``H2OError``
        public func moveArchive(to folder: String, stream: StreamOrDevice = .default) throws {
            try H2OError.throwing { mlx_h2o_layer_cache_move_archive(ctx, folder, stream.ctx) }
        }

        /// Tokens seen so far.
        public var offset: Int { Int(mlx_h2o_layer_cache_offset(ctx)) }

        /// Rows in use: at most C, and more only while a chunk has no attention yet.
        public var length: Int { Int(mlx_h2o_layer_cache_length(ctx)) }

        /// Written tokens without attention.
        public var unattended: Int { Int(mlx_h2o_layer_cache_unattended(ctx)) }

        /// Whether the newest tokens can be removed.
        public var isTrimmable: Bool { mlx_h2o_layer_cache_is_trimmable(ctx) }

        public var numbers: H2OLayerNumbers {
            var numbers = mlx_h2o_layer_numbers()
            mlx_h2o_layer_cache_numbers(&numbers, ctx)
            return H2OLayerNumbers(
                rowBytes: numbers.row_bytes, ledgerBytes: numbers.ledger_bytes,
                archiveBytes: numbers.recalls ? numbers.archive_bytes : nil,
                isInFiles: numbers.in_files,
                sketchBytes: numbers.sketch_bytes, archiveReads: Int(numbers.archive_reads))
        }

        /// The arrays by which the cache evicts; nil while the cache is empty.
        public var ledger: H2OLedger? {
            let arrays = list { mlx_h2o_layer_cache_ledger(&$0, ctx) }
            guard arrays.count == 3 else { return nil }
            return H2OLedger(scores: arrays[0], positions: arrays[1], victim: arrays[2])
        }

        /// The buffers of pool and ring. The next write changes them, unless they are shared.
        public var rows: [MLXArray] { list { mlx_h2o_layer_cache_rows(&$0, ctx) } }

        /// The arrays to save: keys and values of the rows in use of each buffer, then the ledger's
        /// arrays, then the archive's. There are none while the cache is empty.
        public func arrays(stream: StreamOrDevice = .default) -> [MLXArray] {
            list { mlx_h2o_layer_cache_arrays(&$0, ctx, stream.ctx) }
        }

        /// The text to save with the arrays.
        public var header: String {
            mlx_h2o_layer_cache_header(ctx).map { String(cString: $0) } ?? ""
        }

        /// The cache's settings, and how its rows are stored.
        public var configuration: (policy: H2OPolicy, format: H2ORowFormat) {
            var config = mlx_h2o_config()
            mlx_h2o_layer_cache_config(&config, ctx)
            let format = H2ORowFormat(
                keyBits: Int(config.key_bits), valueBits: Int(config.value_bits),
                groupSize: Int(config.group_size),
                recentBits: config.recent_bits > 0 ? Int(config.recent_bits) : nil,
                isRotated: config.rotated)
            return (H2OPolicy(owning: config.policy), format)
        }
    }
}

/// Returns the arrays that a function writes to a list.
private func list(_ fill: (inout mlx_vector_array) -> Int32) -> [MLXArray] {
    var list = mlx_vector_array_new()
    defer { mlx_vector_array_free(list) }
    _ = fill(&list)
    return mlx_vector_array_values(list)
}

private func withCConfig<Result>(
    _ policy: MLXFast.H2OPolicy, _ format: MLXFast.H2ORowFormat,
    _ body: (mlx_h2o_config) -> Result
) -> Result {
    policy.withCPolicy { policy in
        body(
            mlx_h2o_config(
                policy: policy, key_bits: Int32(clamping: format.keyBits),
                value_bits: Int32(clamping: format.valueBits),
                group_size: Int32(clamping: format.groupSize),
                recent_bits: Int32(clamping: format.recentBits ?? 0), rotated: format.isRotated))
    }
}

extension MLXFast {

    /// An error or a warning of the core: a code, and values by their names, for which each
    /// language has a message. The error of an archive in files has the values `path` and `error`,
    /// which is errno, or 0 if the system reported no error.
    public struct H2OError: Error, Hashable, Sendable {
        public let code: String
        public let values: [String: String]

        /// The value as text; empty if there is no such value.
        public func text(_ name: String) -> String { values[name] ?? "" }

        /// The value as an integer; 0 if there is no such value.
        public func integer(_ name: String) -> Int { Int(text(name)) ?? 0 }

        /// Calls a function of the core, and throws its error.
        static func throwing(_ call: () -> Int32) throws {
            try withError {
                if call() != 0, let error = last { throw error }
            }
        }

        /// The error of the last function on this thread; nil if it has no code.
        public static var last: H2OError? {
            let code = String(cString: mlx_h2o_error_code())
            guard !code.isEmpty else { return nil }
            let values = (0 ..< mlx_h2o_error_values()).map { index in
                (
                    String(cString: mlx_h2o_error_name(index)),
                    String(cString: mlx_h2o_error_value(index))
                )
            }
            return H2OError(code: code, values: Dictionary(values) { first, _ in first })
        }
    }

    /// From now on, calls `hear` when a cache continues without scores or recall, on the cache's
    /// thread.
    public static func h2oTell(_ hear: @escaping @Sendable (H2OError) -> Void) {
        mlx_h2o_set_notice_handler(
            { code, path, error, data in
                guard let code, let path, let data else { return }
                let listener = Unmanaged<Listener>.fromOpaque(data).takeUnretainedValue()
                listener.hear(
                    H2OError(
                        code: String(cString: code),
                        values: ["path": String(cString: path), "error": "\(error)"]))
            }, Unmanaged.passRetained(Listener(hear)).toOpaque(),
            { data in
                if let data { Unmanaged<Listener>.fromOpaque(data).release() }
            })
    }

    private final class Listener: Sendable {
        let hear: @Sendable (H2OError) -> Void

        init(_ hear: @escaping @Sendable (H2OError) -> Void) {
            self.hear = hear
        }
    }
}
