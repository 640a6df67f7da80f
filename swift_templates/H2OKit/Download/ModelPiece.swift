/// A part of a model's file that is fetched and checked by itself.
package struct ModelPiece: Hashable, Sendable {
    /// Of the file, relative to the model's folder.
    package let path: String
    /// The first byte in the file.
    package let offset: Int
    /// Bytes.
    package let count: Int
    /// Bytes of the file.
    package let fileSize: Int
    /// 64 lowercase hexadecimal digits.
    package let sha256: String

    package init(path: String, offset: Int, count: Int, fileSize: Int, sha256: String) {
        (self.path, self.offset, self.count) = (path, offset, count)
        (self.fileSize, self.sha256) = (fileSize, sha256)
    }

    package var isWholeFile: Bool { count == fileSize }

    /// Tells it apart from the other pieces of its model.
    package var name: String { "\(offset) \(path)" }
}

extension ModelManifest {
    /// Bytes of all files.
    package var size: Int { files.map(\.size).reduce(0, +) }

    /// The pieces of all files, in order.
    ///
    /// - Throws: ``H2OLoadingError/noPieces`` if the manifest has no digests of pieces, or
    ///   not as many as the sizes ask for, or a path outside the folder
    package func pieces() throws(H2OLoadingError) -> [ModelPiece] {
        guard let pieceSize, pieceSize > 0 else { throw .noPieces }
        var found = [ModelPiece]()
        for file in files {
            let offsets = stride(from: 0, to: file.size, by: pieceSize)
            guard let digests = file.pieces, digests.count == offsets.reduce(0, { n, _ in n + 1 }),
                file.isInside
            else { throw .noPieces }
            found += zip(offsets, digests).map { offset, digest in
                ModelPiece(
                    path: file.path, offset: offset, count: min(pieceSize, file.size - offset),
                    fileSize: file.size, sha256: digest)
            }
        }
        return found
    }
}
