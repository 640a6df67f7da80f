import Cmlx

/// Recall: rows that were evicted come back from an archive. In the shapes: B batch, Hq query
/// heads, Hkv KV heads, L new tokens, A tokens that ask, Dk and Dv the head dims of keys and
/// values.
extension MLXFast {

    /// What is known about an archive beside its arrays.
    public struct H2OArchiveState: Hashable, Sendable {
        /// Tokens seen so far.
        public var length: Int
        /// The oldest position that is still there.
        public var first: Int
        /// 4, 8, or 16 for keys and values as they come.
        public var bits: Int
        /// 32, 64 or 128 elements share a scale and a bias.
        public var groupSize: Int
        /// Of keys and values.
        public var dtype: DType

        public init(length: Int, first: Int, bits: Int, groupSize: Int, dtype: DType) {
            self.length = length
            self.first = first
            self.bits = bits
            self.groupSize = groupSize
            self.dtype = dtype
        }
    }

    /// Key, value and novelty of all tokens that a cache has seen, packed.
    public final class H2OArchive {
        fileprivate let ctx: mlx_h2o_archive

        private init(owning ctx: mlx_h2o_archive) {
            self.ctx = ctx
        }

        /// An empty archive.
        ///
        /// - Parameters:
        ///   - recall: bits, limit, and the folder if it is to be in files
        ///   - groupSize: 32, 64 or 128 elements share a scale and a bias; divides the head dims
        ///   - folder: takes whole segments; nil for memory
        public convenience init(
            _ recall: H2ORecall, groupSize: Int, folder: H2OArchiveFolder? = nil
        ) {
            var ctx = mlx_h2o_archive_new()
            _ = recall.withCRecall {
                mlx_h2o_archive_init(&ctx, $0, Int32(clamping: groupSize), folder.cFolder)
            }
            self.init(owning: ctx)
        }

        /// The archive that had these arrays and this ``state``.
        ///
        /// - Parameter folder: has the segments before the arrays
        /// - Throws: ``H2OArchiveFailure`` where the folder does not fit
        public convenience init(
            arrays: [MLXArray], state: H2OArchiveState, recall: H2ORecall, keyDim: Int,
            folder: H2OArchiveFolder? = nil
        ) throws {
            let list = new_mlx_vector_array(arrays)
            defer { mlx_vector_array_free(list) }
            let saved = mlx_h2o_archive_state(
                length: Int32(clamping: state.length), first: Int32(clamping: state.first), bits: Int32(clamping: state.bits),
                group_size: Int32(clamping: state.groupSize), dtype: state.dtype.cmlxDtype, nbytes: 0)
            var ctx = mlx_h2o_archive_new()
            var failure = mlx_h2o_archive_failure()
            _ = recall.withCRecall {
                mlx_h2o_archive_restore(
                    &ctx, &failure, list, $0, saved, Int32(clamping: keyDim), folder.cFolder)
            }
            if let failure = H2OArchiveFailure(failure) { throw failure }
            self.init(owning: ctx)
        }

        deinit {
            mlx_h2o_archive_free(ctx)
        }

        /// Adds the next tokens.
        ///
        /// - Parameters:
        ///   - keys: `[B, Hkv, L, Dk]`, after RoPE
        ///   - values: `[B, Hkv, L, Dv]`
        ///   - keySum: the ledger's before these tokens
        ///   - policy: the cache's
        ///   - format: the cache's
        ///   - stream: stream or device to evaluate on
        public func append(
            keys: MLXArray, values: MLXArray, keySum: MLXArray, policy: H2OPolicy,
            format: H2ORowFormat, stream: StreamOrDevice = .default
        ) {
            policy.withConfig(format) { config in
                mlx_h2o_archive_append(ctx, keys.ctx, values.ctx, keySum.ctx, config, stream.ctx)
            }
        }

        /// Drops the newest `count` tokens.
        public func trim(_ count: Int, stream: StreamOrDevice = .default) {
            mlx_h2o_archive_trim(ctx, Int32(clamping: count), stream.ctx)
        }

        /// An archive of its own that shares whole segments with this one.
        public func copy() -> H2OArchive {
            var copy = mlx_h2o_archive_new()
            mlx_h2o_archive_copy(&copy, ctx)
            return H2OArchive(owning: copy)
        }

        /// Rows `[B, Hkv, n, words]` and novelty `[B, Hkv, n]` of each segment, then of the
        /// tokens after the last one; segments in files are left out.
        public func arrays(stream: StreamOrDevice = .default) -> [MLXArray] {
            var list = mlx_vector_array_new()
            defer { mlx_vector_array_free(list) }
            mlx_h2o_archive_arrays(&list, ctx, stream.ctx)
            return mlx_vector_array_values(list)
        }

        public var state: H2OArchiveState {
            let state = cState
            return H2OArchiveState(
                length: Int(state.length), first: Int(state.first), bits: Int(state.bits),
                groupSize: Int(state.group_size), dtype: DType(state.dtype))
        }

        /// The oldest position that is still there.
        public var first: Int { Int(cState.first) }

        /// Bytes of all that is archived.
        public var byteCount: Int { Int(cState.nbytes) }

        /// Where it ends in its files; nil where it is in memory.
        public var mark: H2OArchiveMark? {
            var mark = mlx_h2o_archive_mark()
            var hasFiles = false
            mlx_h2o_archive_get_mark(&mark, &hasFiles, ctx)
            return hasFiles ? H2OArchiveMark(mark) : nil
        }

        /// Why it is of no more use; memory never fails.
        public var failure: H2OArchiveFailure? {
            var failure = mlx_h2o_archive_failure()
            mlx_h2o_archive_get_failure(&failure, ctx)
            return H2OArchiveFailure(failure)
        }

        private var cState: mlx_h2o_archive_state {
            var state = mlx_h2o_archive_state()
            mlx_h2o_archive_get_state(&state, ctx)
            return state
        }
    }

    /// Lets tokens that are about to be written bring back the rows that they ask for, in the
    /// place of those of least importance.
    ///
    /// - Parameters:
    ///   - queries: `[B, Hq, A, Dk]`, of the tokens that ask
    ///   - keys: `[B, Hkv, A, Dk]`, their own, after RoPE
    ///   - rows: the cache's, into which these tokens are not yet written
    ///   - ledger: the cache's
    ///   - archive: all tokens before these
    ///   - offset: how many those are
    ///   - scale: factor of the logits, usually `1 / sqrt(Dk)`
    ///   - mask: what the tokens that ask see of each other
    ///   - policy: the cache's
    ///   - format: the cache's
    ///   - stream: stream or device to evaluate on
    /// - Returns: the rows and the ledger, whose ``H2OLedger/held`` says what was chosen, and
    ///   how many rows came. The rows are the given ones if none came.
    public static func h2oRecall(
        queries: MLXArray, keys: MLXArray, rows: H2ORows, ledger: H2OLedger, archive: H2OArchive,
        offset: Int, scale: Float, mask: ScaledDotProductAttentionMaskMode, policy: H2OPolicy,
        format: H2ORowFormat, stream: StreamOrDevice = .default
    ) -> (rows: H2ORows, ledger: H2OLedger, count: Int) {
        var newRows = mlx_h2o_rows()
        var newLedger = mlx_h2o_ledger()
        var count: Int32 = 0
        mask.mode.withCString { mode in
            let arguments = mlx_h2o_recall_arguments(
                queries: queries.ctx, keys: keys.ctx, rows: rows.borrowed,
                ledger: ledger.borrowed, archive: archive.ctx, offset: Int32(clamping: offset),
                scale: scale, mask_mode: mode, mask_arr: (mask.mask ?? .mlxNone).ctx,
                sinks: mlx_array())
            policy.withConfig(format) { config in
                mlx_h2o_recall_rows(
                    &newRows, &newLedger, &count, arguments, config, stream.ctx)
            }
        }
        return (H2ORows(owning: newRows), H2OLedger(owning: newLedger), Int(count))
    }
}
