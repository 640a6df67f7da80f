import Foundation
import H2OKit
import MLX
import MLXLMCommon

/// The trace of a run of the Python cache: a folder with `trace.json`, and for each case a
/// folder with one safetensors file per step.
struct ParityTrace: Decodable, Sendable {
    let format: Int
    let cases: [Case]

    struct Case: Decodable, Sendable {
        let name: String
        let folder: String
        let dtype: String
        /// The recorded layers, by their index among the caches that evict.
        let layers: [Int]
        let scale: Float
        /// Whether the cache computed attention; otherwise it only stored keys and values.
        let routed: Bool
        let kv: H2OStorage
        let groupSize: Int
        let config: H2OConfiguration
        /// The number of tokens of each step.
        let steps: [Int]
        /// The tolerance of outputs, relative to the largest output of the step if that is above 1.
        let tolerance: Double
        /// The tolerance of scores, relative to the score if that is above 1.
        let scoreTolerance: Double

        private enum CodingKeys: String, CodingKey {
            case name, folder, dtype, layers, scale, routed, kv, config, steps, tolerance
            case groupSize = "group_size"
            case scoreTolerance = "score_tolerance"
        }
    }

    private static let format = 7

    /// - Throws: ``ParityTraceError``, or an error of reading a file
    init(contentsOf file: URL) throws {
        self = try JSONDecoder().decode(ParityTrace.self, from: Data(contentsOf: file))
        guard format == Self.format else {
            throw ParityTraceError.otherFormat(format, reads: Self.format)
        }
    }
}

/// Why a trace cannot be replayed.
enum ParityTraceError: LocalizedError, Hashable, Sendable {
    case otherFormat(Int, reads: Int)
    case missing(array: String)
    /// A cache is empty although it received tokens.
    case emptyCache

    var errorDescription: String? {
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

/// The arrays of a step by layer: q `[B, Hq, L, Dk]`, k `[B, Hkv, L, Dk]`, v `[B, Hkv, L, Dv]`, out
/// `[B, Hq, L, Dv]`, and the ledger after the step: positions int32 `[B, Hkv, C]` and scores
/// float32 `[B, Hkv, C]`.
private struct ParityArrays {
    let arrays: [String: MLXArray]

    func callAsFunction(_ layer: Int, _ name: String) throws -> MLXArray {
        let key = "\(layer).\(name)"
        guard let array = arrays[key] else { throw ParityTraceError.missing(array: key) }
        return array
    }
}

extension ParityTrace {
    /// Replays a case with new caches, and compares their results with the trace.
    ///
    /// - Parameter folder: the folder of the files with arrays
    /// - Throws: ``ParityTraceError``, ``H2OCacheError``, or an error of reading a file
    func replay(_ traced: Case, in folder: URL) throws -> ParityResult {
        let caches = try traced.layers.map { _ in
            try traced.kv.makeCache(traced.config, groupSize: traced.groupSize)
        }
        var result = ParityResult(
            name: traced.name, dtype: traced.dtype, layers: traced.layers.count,
            steps: traced.steps.count)
        for step in traced.steps.indices {
            let file = folder.appending(path: "\(traced.folder)/\(step).safetensors")
            let arrays = ParityArrays(arrays: try loadArrays(url: file))
            for (layer, cache) in zip(traced.layers, caches) {
                do {
                    try replay(traced, layer, step, on: cache, arrays, &result)
                } catch let error as MLXError {
                    // Stops, because nothing can be compared after the cache has lost its state.
                    result.firstDifference =
                        result.firstDifference
                        ?? .init(
                            layer: layer, step: step, kind: traced.routed ? .output : .positions,
                            detail: error.localizedDescription)
                    return result
                }
            }
        }
        return result
    }

    private func replay(
        _ traced: Case, _ layer: Int, _ step: Int, on cache: H2OKVCache,
        _ arrays: ParityArrays, _ result: inout ParityResult
    ) throws {
        let comparison = ParityComparison(
            layer: layer, step: step, tolerance: Float(traced.tolerance))
        let (keys, values) = (try arrays(layer, "k"), try arrays(layer, "v"))
        if traced.routed {
            let queries = try arrays(layer, "q")
            let output = try withError {
                attentionWithCacheUpdate(
                    queries: queries, keys: keys, values: values, cache: cache,
                    scale: traced.scale, mask: traced.steps[step] > 1 ? .causal : .none)
            }
            comparison.outputs(output, try arrays(layer, "out"), in: &result)
        } else {
            try withError {
                _ = cache.update(keys: keys, values: values)
                cache.settle()
            }
        }
        guard let positions = cache.positions else { throw ParityTraceError.emptyCache }
        let tracedPositions = try arrays(layer, "positions")
        comparison.positions(positions, tracedPositions, in: &result)
        if traced.routed {
            guard let scores = cache.scores else { throw ParityTraceError.emptyCache }
            comparison.scores(
                (positions, scores), (tracedPositions, try arrays(layer, "scores")),
                within: Float(traced.scoreTolerance), in: &result)
        }
    }
}
