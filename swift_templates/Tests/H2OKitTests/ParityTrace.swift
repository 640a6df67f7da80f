import Foundation
import H2OKit
import MLX

/// What a run of the Python cache went through: `trace.json` and one safetensors file
/// for each case.
struct ParityTrace: Decodable {
    let format: Int
    let cases: [Case]

    struct Case: Decodable {
        let name: String
        let file: String
        let dtype: String
        let layers: Int
        let scale: Float
        /// Whether the attention was the cache's; otherwise only keys and values came.
        let routed: Bool
        let kv: H2OStorage
        let groupSize: Int
        let config: H2OConfiguration
        /// How many tokens each step has.
        let steps: [Int]
        /// Of outputs, in relation to the largest one of the step where that is above 1.
        let tolerance: Float

        private enum CodingKeys: String, CodingKey {
            case name, file, dtype, layers, scale, routed, kv, config, steps, tolerance
            case groupSize = "group_size"
        }
    }

    static let format = 3

    init(folder: URL) throws {
        let data = try Data(contentsOf: folder.appending(path: "trace.json"))
        self = try JSONDecoder().decode(ParityTrace.self, from: data)
        guard format == Self.format else {
            throw ParityTraceError(
                errorDescription: "\(folder.path) has trace format \(format), these tests read "
                    + "\(Self.format). Record it again with the version that made this package.")
        }
    }
}

struct ParityTraceError: LocalizedError {
    let errorDescription: String?
}

/// The arrays of a case by layer and step: q `[B, Hq, L, Dk]`, k `[B, Hkv, L, Dk]`,
/// v `[B, Hkv, L, Dv]`, out `[B, Hq, L, Dv]`, and as they are after the step positions
/// int32, scores float32 and, with recall, held bool `[B, Hkv, C]`.
struct ParityArrays {
    let file: URL
    private let arrays: [String: MLXArray]

    init(file: URL) throws {
        self.file = file
        arrays = try loadArrays(url: file)
    }

    func callAsFunction(_ layer: Int, _ step: Int, _ name: String) throws -> MLXArray {
        let key = "\(layer).\(step).\(name)"
        guard let array = arrays[key] else {
            throw ParityTraceError(
                errorDescription: "\(file.path) lacks the array \(key). Record the trace again.")
        }
        return array
    }
}
