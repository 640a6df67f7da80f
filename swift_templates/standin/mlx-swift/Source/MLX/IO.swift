// A stand-in for the functions of mlx-swift 0.31.6 that read and write safetensors files.

import Cmlx
import Foundation

/// Reads the arrays of a safetensors file, by name.
public func loadArrays(url: URL, stream: StreamOrDevice = .cpu) throws -> [String: MLXArray] {
    try loadArraysAndMetadata(url: url, stream: stream).0
}

/// Reads the arrays and the metadata of a safetensors file, by name.
public func loadArraysAndMetadata(url: URL, stream: StreamOrDevice = .cpu) throws -> (
    [String: MLXArray], [String: String]
) {
    var contents = FileContents()
    _ = try withError {
        withUnsafeMutablePointer(to: &contents) { contents in
            mlx_load_safetensors(
                url.path(percentEncoded: false), stream.ctx, contents,
                { contents, name, array in
                    guard let contents, let name else { return }
                    contents.assumingMemoryBound(to: FileContents.self)
                        .pointee.arrays[String(cString: name)] = MLXArray(array)
                },
                { contents, name, text in
                    guard let contents, let name, let text else { return }
                    contents.assumingMemoryBound(to: FileContents.self)
                        .pointee.metadata[String(cString: name)] = String(cString: text)
                })
        }
    }
    return (contents.arrays, contents.metadata)
}

private struct FileContents {
    var arrays = [String: MLXArray]()
    var metadata = [String: String]()
}

/// Reads the arrays and the metadata of a safetensors file from the file's bytes. The stand-in
/// writes them to a temporary file.
public func loadArraysAndMetadata(data: Data, stream: StreamOrDevice = .cpu) throws -> (
    [String: MLXArray], [String: String]
) {
    let file = FileManager.default.temporaryDirectory
        .appending(path: "\(UUID().uuidString).safetensors")
    try data.write(to: file)
    defer { try? FileManager.default.removeItem(at: file) }
    let (arrays, metadata) = try loadArraysAndMetadata(url: file, stream: stream)
    try withError { eval(arrays.values) }
    return (arrays, metadata)
}

/// Writes a safetensors file.
public func save(
    arrays: [String: MLXArray], metadata: [String: String] = [:], url: URL,
    stream: StreamOrDevice = .default
) throws {
    let list = new_mlx_vector_array(arrays.values)
    // Copies the strings, because they must be valid until the call returns.
    let names: [UnsafeMutablePointer<CChar>?] = arrays.keys.map { strdup($0) }
    let texts: [UnsafeMutablePointer<CChar>?] = metadata.flatMap { [strdup($0), strdup($1)] }
    defer {
        mlx_vector_array_free(list)
        for text in names + texts { free(text) }
    }
    _ = try withError {
        mlx_save_safetensors(
            url.path(percentEncoded: false), names.map { UnsafePointer($0) }, list,
            texts.map { UnsafePointer($0) }, metadata.count)
    }
}
