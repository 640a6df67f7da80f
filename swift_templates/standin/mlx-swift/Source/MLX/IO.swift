// Stands in for the file reading of mlx-swift 0.31.6.

import Cmlx
import Foundation

/// The arrays of a safetensors file by name.
public func loadArrays(url: URL, stream: StreamOrDevice = .cpu) throws -> [String: MLXArray] {
    var arrays = mlx_map_string_to_array_new()
    var metadata = mlx_map_string_to_string_new()
    defer {
        mlx_map_string_to_array_free(arrays)
        mlx_map_string_to_string_free(metadata)
    }
    _ = try withError {
        mlx_load_safetensors(
            &arrays, &metadata, url.path(percentEncoded: false), stream.ctx)
    }

    let iterator = mlx_map_string_to_array_iterator_new(arrays)
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
