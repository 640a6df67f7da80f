import Foundation
import MLX

/// What a saved cache says of its archive, in Python's names.
struct SavedArchive: Codable, Hashable {
    let bits: Int
    let dtype: SavedDType
    let first: Int
    let groupSize: Int
    /// Single tokens since the last recall.
    let since: Int
    /// Where the archive ends in its folder; nil where it was in memory.
    let files: Mark?

    /// Whether any archive has such numbers.
    var isPossible: Bool {
        [4, 8, 16].contains(bits) && H2OStorage.groupSizes.contains(groupSize) && first >= 0
            && 0 ... Int(Int32.max) ~= since && (files?.count ?? 0) >= 0
    }

    private enum CodingKeys: String, CodingKey {
        case bits, dtype, first, since, files
        case groupSize = "group_size"
    }

    struct Mark: Codable, Hashable {
        let session: String
        let count: Int
        let chain: String

        var mark: MLXFast.H2OArchiveMark {
            MLXFast.H2OArchiveMark(session: session, count: count, chain: chain)
        }
    }
}

extension H2OConfiguration {
    /// This configuration of one layer with its archive in files in another folder of the
    /// conversation's; the layer's own folder in it keeps its name.
    func movingArchive(to folder: URL?) throws -> H2OConfiguration {
        guard let folder, let recall, let store = recall.store else { return self }
        let layer = URL(filePath: store).lastPathComponent
        let path = folder.appending(path: layer, directoryHint: .notDirectory)
            .path(percentEncoded: false)
        return try with(recall: recall.with(layers: recall.layers, store: path))
    }

    /// This configuration with its archive in memory.
    func archivingInMemory() throws -> H2OConfiguration {
        guard let recall else { return self }
        return try with(recall: recall.with(layers: recall.layers, store: .some(nil)))
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
                groupSize: state.groupSize, since: recall.since,
                files: recall.archive.mark.map {
                    SavedArchive.Mark(session: $0.session, count: $0.count, chain: $0.chain)
                }))
    }

    /// Makes the archive of the arrays restored before.
    ///
    /// - Throws: ``H2OCacheError``, `MLXError`
    mutating func restoreArchive(_ text: String?) throws {
        defer { restoredArchive = [] }
        guard let text else {
            (recall, recallEnded) = (nil, ledger != nil)
            return
        }
        let saved = try decode(SavedArchive.self, text)
        guard let settings = configuration.recall, let ledger else {
            throw H2OCacheError.damaged(
                reason: "it has an archive, and its configuration no recall")
        }
        guard saved.isPossible, saved.first <= offset else {
            throw H2OCacheError.damaged(reason: "its archive is \(text)")
        }
        let state = MLXFast.H2OArchiveState(
            length: offset, first: saved.first, bits: saved.bits, groupSize: saved.groupSize,
            dtype: saved.dtype.value)
        // Without a mark the folder is not its own, and nothing is written there.
        if saved.files == nil { configuration = try configuration.archivingInMemory() }
        let (arrays, path) = (restoredArchive, saved.files == nil ? nil : settings.store)
        let archive = try H2OCacheError.withArchives {
            let folder = try path.map {
                try MLXFast.H2OArchiveFolder($0, continuing: saved.files?.mark)
            }
            return try Self.archive(
                of: arrays, state, settings, keyDim: ledger.keySum.dim(2), in: folder)
        }
        recall = H2ORecallState(settings: settings, archive: archive, since: saved.since)
    }

    /// Goes on with the archive in a new folder, the one that a configuration names, and not in
    /// memory. Does nothing if it names none.
    ///
    /// - Throws: ``H2OCacheError/archive(_:)`` or `MLXError`
    mutating func moveArchive(to other: H2OConfiguration) throws {
        guard let settings = other.recall, let store = settings.store, let recall, let ledger
        else { return }
        let archive = try H2OCacheError.withArchives {
            try Self.archive(
                of: recall.archive.arrays(), recall.archive.state, settings,
                keyDim: ledger.keySum.dim(2), in: MLXFast.H2OArchiveFolder(store))
        }
        configuration = try configuration.with(recall: settings)
        self.recall = H2ORecallState(
            settings: settings, archive: archive, since: recall.since,
            statistics: recall.statistics)
    }

    /// An archive of which nothing is left to compute: that would belong to this thread, and
    /// only what is computed goes to files.
    private static func archive(
        of arrays: [MLXArray], _ state: MLXFast.H2OArchiveState, _ settings: H2ORecall,
        keyDim: Int, in folder: MLXFast.H2OArchiveFolder?
    ) throws -> MLXFast.H2OArchive {
        let archive = try MLXFast.H2OArchive(
            arrays: arrays, state: state, recall: settings.settings, keyDim: keyDim,
            folder: folder)
        eval(archive.arrays())
        return archive
    }
}
