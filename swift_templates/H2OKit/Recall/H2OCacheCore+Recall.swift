import MLX

extension H2OCacheCore {
    /// Stores new tokens `[B, Hkv, L, D]` and attends to all rows; returns `[B, Hq, L, Dv]`.
    ///
    /// With recall the last tokens of a chunk, or every n-th single one, ask: what comes before
    /// them is taken first, then their queries bring rows back, then they are taken.
    mutating func attend(
        queries: MLXArray, keys: MLXArray, values: MLXArray, scale: Float,
        mask: MLXFast.ScaledDotProductAttentionMaskMode
    ) -> MLXArray {
        settle()
        start(keys: keys, values: values)
        let tokens = keys.dim(2)
        let asking = askingTokens(of: tokens)
        let before = tokens - asking
        guard asking > 0 else {
            return attendAtOnce(
                queries: queries, keys: keys, values: values, scale: scale, mask: mask)
        }
        func take(
            _ range: Range<Int>, _ mask: MLXFast.ScaledDotProductAttentionMaskMode
        ) -> MLXArray {
            attendAtOnce(
                queries: queries.tokens(range), keys: keys.tokens(range),
                values: values.tokens(range), scale: scale, mask: mask)
        }
        var outputs = [MLXArray]()
        if before > 0 { outputs.append(take(0 ..< before, mask.first(before, of: tokens))) }
        recallRows(
            queries: queries.tokens(before ..< tokens), keys: keys.tokens(before ..< tokens),
            scale: scale, mask: mask.amongLast(asking))
        outputs.append(take(before ..< tokens, mask.last(asking, over: length)))
        return outputs.count == 1 ? outputs[0] : concatenated(outputs, axis: 2)
    }

    private mutating func attendAtOnce(
        queries: MLXArray, keys: MLXArray, values: MLXArray, scale: Float,
        mask: MLXFast.ScaledDotProductAttentionMaskMode
    ) -> MLXArray {
        write(keys: keys, values: values)
        return settle(queries: queries, scale: scale, mask: mask) ?? .mlxNone
    }

    /// How many of the newest `tokens` ask, 0 where nothing is to be recalled. Counts single
    /// tokens.
    private mutating func askingTokens(of tokens: Int) -> Int {
        guard let settings = recall?.settings else { return 0 }
        if tokens > 1 {
            let asking = min(settings.ask, tokens)
            return offset + tokens - asking > configuration.maxSize ? asking : 0
        }
        recall?.since += 1
        let isDue = settings.every > 0 && (recall?.since ?? 0) >= settings.every
        return isDue && offset > configuration.maxSize ? 1 : 0
    }

    /// Lets the queries `[B, Hq, a, Dk]` of the next tokens bring rows back.
    private mutating func recallRows(
        queries: MLXArray, keys: MLXArray, scale: Float,
        mask: MLXFast.ScaledDotProductAttentionMaskMode
    ) {
        guard let recall, let rows, let ledger else { return }
        // What they are computed from takes its time too, which is not recall's.
        eval([queries, keys] + rows.arrays + ledger.arrays)
        let clock = ContinuousClock()
        let begun = clock.now
        let recalled = MLXFast.h2oRecall(
            queries: queries, keys: keys, rows: rows, ledger: ledger, archive: recall.archive,
            offset: offset, scale: scale, mask: mask, policy: configuration.policy,
            format: format)
        (self.rows, self.ledger) = (recalled.rows, recalled.ledger)
        isShared = isShared && recalled.count == 0  // otherwise the rows are new
        eval(recalled.rows.arrays + recalled.ledger.arrays)
        self.recall?.since = 0
        self.recall?.statistics.rows += recalled.count
        self.recall?.statistics.seconds += (clock.now - begun) / .seconds(1)
        checkArchive()
    }

    /// What recall did, and what its archive takes now; nil without recall.
    var recalled: H2ORecallStatistics? {
        guard let recall else { return nil }
        var statistics = recall.statistics
        statistics.archiveBytes = recall.archive.byteCount
        return statistics
    }

    mutating func startRecall(keyDim: Int, valueDim: Int) {
        guard let settings = configuration.recall, configuration.recallRows > 0, !recallEnded
        else { return }
        let (bits, dims) = (settings.archiveBits, [keyDim, valueDim])
        guard let groupSize = H2ORecallState.groupSize(format.groupSize, dims: dims, bits: bits)
        else {
            return endRecall(
                because: "an archive of \(bits) bits does not suit head dims of \(keyDim) and "
                    + "\(valueDim), as groups of 32 elements share a scale. Set archiveBits to 16.")
        }
        do {
            let archive = try H2OCacheError.withArchives {
                let folder = try settings.store.map { try MLXFast.H2OArchiveFolder($0) }
                return MLXFast.H2OArchive(
                    settings.settings, groupSize: groupSize, folder: folder)
            }
            recall = H2ORecallState(settings: settings, archive: archive)
            let shape = ledger?.positions.shape ?? []
            ledger?.held = .zeros(shape, dtype: .bool)
        } catch {
            endRecall(because: error.localizedDescription)
        }
    }

    /// Puts tokens that are about to be written into the archive; `keySum` is the ledger's
    /// before them.
    mutating func archive(keys: MLXArray, values: MLXArray, keySum: MLXArray) {
        guard let archive = recall?.archive else { return }
        archive.append(
            keys: keys, values: values, keySum: keySum, policy: configuration.policy,
            format: format)
        if keys.dim(2) > 1 { checkArchive() }
    }

    /// Ends recall once the archive cannot be read or written any more.
    private mutating func checkArchive() {
        if let archive = recall?.archive, archive.first > 0 { H2OWarning.archiveLimit }
        if let failure = recall?.archive.failure {
            endRecall(because: H2OCacheError.archive(failure).localizedDescription)
        }
    }

    /// Ends recall where the attention was computed elsewhere.
    mutating func endRecallWithoutQueries() {
        guard recall != nil else { return }
        endRecall(
            because: "the model calls a cache's update(keys:values:) and attends itself, so "
                + "nothing says which rows to bring back.")
    }

    /// Goes on without recall.
    mutating func endRecall(because reason: String) {
        H2OWarning.recallEnds(reason)
        (recall, recallEnded) = (nil, true)
        ledger?.held = nil
    }
}
