import Foundation
import MLX

/// What a run of the Python cache went through: a folder with `trace.json` and one safetensors
/// file for each case, or a document that holds its files.
package struct ParityTrace: Decodable, Sendable {
    package let format: Int
    package let cases: [Case]
    /// By the names that cases have for them; `inputs` has what several cases share. nil where
    /// the files are beside the document.
    private let files: [String: Data]?

    package struct Case: Decodable, Sendable {
        package let name: String
        package let file: String
        package let dtype: String
        package let layers: Int
        let scale: Float
        /// Whether the attention was the cache's; otherwise only keys and values came.
        let routed: Bool
        let kv: H2OStorage
        let groupSize: Int
        let config: H2OConfiguration
        /// How many tokens each step has.
        package let steps: [Int]
        /// Of outputs, in relation to the largest one of the step where that is above 1.
        package let tolerance: Double
        /// Of scores, in relation to the score where that is above 1.
        package let scoreTolerance: Double

        /// The type in which the model gave keys and values.
        var type: DType? {
            ["float32": .float32, "float16": .float16, "bfloat16": .bfloat16][dtype]
        }

        private enum CodingKeys: String, CodingKey {
            case name, file, dtype, layers, scale, routed, kv, config, steps, tolerance
            case groupSize = "group_size"
            case scoreTolerance = "score_tolerance"
        }
    }

    private static let format = 4
    private static let inputs = "inputs"

    /// - Throws: ``ParityTraceError``, or what reading a file throws
    package init(contentsOf file: URL) throws {
        self = try JSONDecoder().decode(ParityTrace.self, from: Data(contentsOf: file))
        guard format == Self.format else {
            throw ParityTraceError.otherFormat(format, reads: Self.format)
        }
    }

    /// The arrays of a case.
    ///
    /// - Parameter folder: where files are that the document does not hold
    /// - Throws: what reading a file throws
    package func arrays(of traced: Case, in folder: URL) throws -> ParityArrays {
        guard let files else {
            return ParityArrays(try loadArrays(url: folder.appending(path: traced.file)))
        }
        let parts = try [Self.inputs, traced.file].compactMap { files[$0] }.map {
            try loadArraysAndMetadata(data: $0).0
        }
        return ParityArrays(parts.reduce(into: [:]) { $0.merge($1) { $1 } })
    }
}

/// Why a trace cannot be replayed.
package enum ParityTraceError: LocalizedError, Hashable, Sendable {
    case otherFormat(Int, reads: Int)
    case missing(array: String)
    /// A cache that was given tokens has none.
    case emptyCache

    package var errorDescription: String? {
        switch self {
        case .otherFormat(let format, let own):
            "The trace has format \(format), and this package reads \(own). Record it again "
                + "with the version of h2o-pack that made this package."
        case .missing(let array):
            "The trace lacks the array \(array). Record it again."
        case .emptyCache: "The cache kept none of the trace's tokens."
        }
    }
}

/// The arrays of a case by layer and step: q `[B, Hq, L, Dk]`, k `[B, Hkv, L, Dk]`,
/// v `[B, Hkv, L, Dv]`, out `[B, Hq, L, Dv]`, and as they are after the step positions
/// int32, scores float32 and, with recall, held bool `[B, Hkv, C]`.
package struct ParityArrays {
    private let arrays: [String: MLXArray]

    init(_ arrays: [String: MLXArray]) { self.arrays = arrays }

    func callAsFunction(_ layer: Int, _ step: Int, _ name: String) throws -> MLXArray {
        let key = "\(layer).\(step).\(name)"
        guard let array = arrays[key] else { throw ParityTraceError.missing(array: key) }
        return array
    }
}
