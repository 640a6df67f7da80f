// Stands in for the safetensors files of mlx-swift 0.31.6.

import Cmlx
import Foundation

/// The arrays of a safetensors file by name.
public func loadArrays(url: URL, stream: StreamOrDevice = .cpu) throws -> [String: MLXArray] {
    try loadArraysAndMetadata(url: url, stream: stream).0
}

/// The arrays and the metadata of a safetensors file by name.
public func loadArraysAndMetadata(url: URL, stream: StreamOrDevice = .cpu) throws -> (
    [String: MLXArray], [String: String]
) {
    let arrays = mlx_map_string_to_array_new()
    let metadata = mlx_map_string_to_string_new()
    defer {
        mlx_map_string_to_array_free(arrays)
        mlx_map_string_to_string_free(metadata)
    }
    var (arrayResult, metadataResult) = (arrays, metadata)
    _ = try withError {
        mlx_load_safetensors(
            &arrayResult, &metadataResult, url.path(percentEncoded: false), stream.ctx)
    }
    return (values(of: arrays), values(of: metadata))
}

/// The arrays and the metadata of a safetensors file's bytes. Here they go through a file.
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
    let cArrays = mlx_map_string_to_array_new()
    let cMetadata = mlx_map_string_to_string_new()
    defer {
        mlx_map_string_to_array_free(cArrays)
        mlx_map_string_to_string_free(cMetadata)
    }
    for (name, array) in arrays { mlx_map_string_to_array_insert(cArrays, name, array.ctx) }
    for (name, text) in metadata { mlx_map_string_to_string_insert(cMetadata, name, text) }
    _ = try withError {
        mlx_save_safetensors(url.path(percentEncoded: false), cArrays, cMetadata)
    }
}

private func values(of map: mlx_map_string_to_array) -> [String: MLXArray] {
    let iterator = mlx_map_string_to_array_iterator_new(map)
    defer { mlx_map_string_to_array_iterator_free(iterator) }
    var result = [String: MLXArray]()
    var key: UnsafePointer<CChar>?
    var value = mlx_array_new()
    while mlx_map_string_to_array_iterator_next(&key, &value, iterator) == 0 {
        guard let name = key else { continue }
        result[String(cString: name)] = MLXArray(value)
        value = mlx_array_new()
    }
    return result
}

private func values(of map: mlx_map_string_to_string) -> [String: String] {
    let iterator = mlx_map_string_to_string_iterator_new(map)
    defer { mlx_map_string_to_string_iterator_free(iterator) }
    var result = [String: String]()
    var key: UnsafePointer<CChar>?
    var value: UnsafePointer<CChar>?
    while mlx_map_string_to_string_iterator_next(&key, &value, iterator) == 0 {
        guard let name = key, let text = value else { continue }
        result[String(cString: name)] = String(cString: text)
    }
    return result
}
