import Foundation
import H2OKit

/// A model of a few bytes, in pieces of four.
struct DownloadFixture {
    let root = FileManager.default.temporaryDirectory.appending(
        path: UUID().uuidString, directoryHint: .isDirectory)

    /// A store for a model of these files.
    func store(_ files: [String: String]) throws -> DownloadStore {
        try DownloadStore(manifest: manifest(files), root: root)
    }

    func manifest(_ files: [String: String], pieceSize: Int = 4) throws -> Data {
        let listed = files.sorted { $0.key < $1.key }.map { path, text -> [String: Any] in
            [
                "path": path, "size": text.utf8.count, "sha256": Self.digest(text),
                "pieces": Self.pieces(text, pieceSize).map(Self.digest),
            ]
        }
        return try JSONSerialization.data(
            withJSONObject: [
                "format": 1, "model": "m", "files": listed, "piece_size": pieceSize,
            ], options: .sortedKeys)
    }

    /// A file with the bytes of a piece, as they arrive.
    func arrived(_ text: String) throws -> URL {
        let file = FileManager.default.temporaryDirectory.appending(path: UUID().uuidString)
        try Data(text.utf8).write(to: file)
        return file
    }

    func text(of path: String, in folder: URL) throws -> String {
        try String(contentsOf: folder.appending(path: path), encoding: .utf8)
    }

    func delete() { try? FileManager.default.removeItem(at: root) }

    private static func pieces(_ text: String, _ size: Int) -> [String] {
        stride(from: 0, to: text.count, by: size).map {
            String(text.dropFirst($0).prefix(size))
        }
    }

    private static func digest(_ text: String) -> String {
        var hash = SHA256Hash()
        hash.update(data: Data(text.utf8))
        return hash.hexadecimal
    }
}
