import MLX

/// What a saved cache says of its archive, in Python's names.
struct SavedArchive: Codable, Hashable {
    let bits: Int
    let dtype: SavedDType
    let first: Int
    let groupSize: Int
    /// Single tokens since the last recall.
    let since: Int

    private enum CodingKeys: String, CodingKey {
        case bits, dtype, first, since
        case groupSize = "group_size"
    }
}

extension H2OCacheCore {
    /// The archive, as JSON; nil without recall.
    var savedArchive: String? {
        guard let recall else { return nil }
        let state = recall.archive.state
        return json(
            SavedArchive(
                bits: state.bits, dtype: SavedDType(state.dtype), first: state.first,
                groupSize: state.groupSize, since: recall.since))
    }

    /// Makes the archive of the arrays restored before.
    ///
    /// - Throws: ``H2OStateError``, `DecodingError`, `MLXError`
    mutating func restoreArchive(_ text: String?) throws {
        defer { restoredArchive = [] }
        guard let text else {
            (recall, recallEnded) = (nil, ledger != nil)
            return
        }
        let saved = try decode(SavedArchive.self, text)
        guard let settings = configuration.recall, let ledger else {
            throw H2OStateError.inconsistent("it has an archive, and its configuration no recall")
        }
        guard saved.since >= 0, 0 ... offset ~= saved.first else {
            throw H2OStateError.inconsistent("its archive is \(text)")
        }
        let state = MLXFast.H2OArchiveState(
            length: offset, first: saved.first, bits: saved.bits, groupSize: saved.groupSize,
            dtype: saved.dtype.value)
        let arrays = restoredArchive
        let archive = try withError {
            MLXFast.H2OArchive(
                arrays: arrays, state: state, recall: settings.settings,
                keyDim: ledger.keySum.dim(2))
        }
        recall = H2ORecallState(settings: settings, archive: archive, since: saved.since)
    }
}
