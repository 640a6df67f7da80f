import Foundation

/// The folder to which a model is downloaded.
///
/// Only the files say which pieces are present: a piece is present if its bytes have the expected
/// digest. An incomplete write therefore never counts as a piece. The folder with the model's name
/// exists only when the model is complete.
package struct DownloadStore: Sendable {
    package let manifest: ModelManifest
    package let pieces: [ModelPiece]
    /// Identifies this model by all of its files.
    package let version: String
    private let manifestData: Data
    private let root: URL

    /// - Parameters:
    ///   - manifestData: the content of the app's own `manifest.json`
    ///   - root: the folder of all downloaded models. Only folders that are named by the digest of a
    ///     manifest are used and deleted
    /// - Throws: ``H2OLoadingError``
    package init(manifest manifestData: Data, root: URL) throws {
        self.manifestData = manifestData
        self.root = root
        manifest = try ModelManifest.decode(manifestData)
        pieces = try manifest.pieces()
        version = FileDigest.sha256(of: manifestData)
    }

    /// The model's folder; nil until the model is complete.
    package var whole: URL? {
        FileManager.default.fileExists(atPath: folder.path) ? folder : nil
    }

    /// Whether the model, or a part of it, is there.
    package var hasBegun: Bool {
        whole != nil || FileManager.default.fileExists(atPath: part.path)
    }

    private var folder: URL { root.appending(path: version, directoryHint: .isDirectory) }

    /// The folder in which pieces are collected.
    private var part: URL {
        root.appending(path: "\(version).part", directoryHint: .isDirectory)
    }

    /// Creates the folder for pieces, excluded from backups. Copies files into it that an earlier
    /// version of the model on the device has too. Deletes the incomplete folders of other
    /// versions.
    ///
    /// - Throws: an error of the file system
    package func prepare() throws {
        let files = FileManager.default
        try files.createDirectory(at: part, withIntermediateDirectories: true)
        try root.excludeFromBackup()
        let others = try models().filter { $0 != part && $0 != folder }
        for file in manifest.files {
            let target = part.appending(path: file.path)
            guard !files.fileExists(atPath: target.path) else { continue }
            try files.createDirectory(
                at: target.deletingLastPathComponent(), withIntermediateDirectories: true)
            let same = others.first { other in
                (try? ModelManifest.read(in: other))?.files.contains(file) ?? false
            }
            // On APFS the copy is a clone. If copying fails, the file is downloaded.
            if let same { try? files.copyItem(at: same.appending(path: file.path), to: target) }
            if file.size == 0 { try Data().write(to: target) }
        }
        for other in others where other.pathExtension == "part" { try files.removeItem(at: other) }
    }

    /// The missing pieces. Reads all files to find them.
    package func missing() -> [ModelPiece] {
        pieces.filter { digest(of: $0) != $0.sha256 }
    }

    /// Moves a piece to its place if its digest is right.
    ///
    /// - Parameter file: contains the piece and nothing else
    /// - Returns: whether the digest is right
    /// - Throws: an error of the file system
    package func put(_ piece: ModelPiece, from file: URL) throws -> Bool {
        let data = try Data(contentsOf: file)
        guard data.count == piece.count, FileDigest.sha256(of: data) == piece.sha256 else {
            return false
        }
        let target = part.appending(path: piece.path)
        if !FileManager.default.fileExists(atPath: target.path) { try Data().write(to: target) }
        let handle = try FileHandle(forUpdating: target)
        defer { try? handle.close() }
        try handle.seek(toOffset: UInt64(piece.offset))
        try handle.write(contentsOf: data)
        try handle.synchronize()
        return true
    }

    /// Renames the folder when all pieces are present, and deletes earlier versions.
    ///
    /// - Returns: the model's folder
    /// - Throws: an error of the file system
    package func finish() throws -> URL {
        let files = FileManager.default
        try manifestData.write(to: part.appending(path: ModelManifest.fileName))
        try files.moveItem(at: part, to: folder)
        for other in try models() where other != folder { try? files.removeItem(at: other) }
        return folder
    }

    /// Complete and incomplete folders of models.
    private func models() throws -> [URL] {
        try FileManager.default.contentsOfDirectory(atPath: root.path).sorted()
            .filter { $0.wholeMatch(of: /[0-9a-f]{64}(\.part)?/) != nil }
            .map { root.appending(path: $0, directoryHint: .isDirectory) }
    }

    private func digest(of piece: ModelPiece) -> String? {
        guard let file = try? FileHandle(forReadingFrom: part.appending(path: piece.path)) else {
            return nil
        }
        defer { try? file.close() }
        guard (try? file.seek(toOffset: UInt64(piece.offset))) != nil,
            let data = try? file.read(upToCount: piece.count), data.count == piece.count
        else { return nil }
        return FileDigest.sha256(of: data)
    }
}
