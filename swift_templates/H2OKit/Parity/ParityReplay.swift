import Foundation
import MLX
import MLXLMCommon

extension ParityTrace {
    /// Gives a case's tokens to caches of its own, and compares what they answer.
    ///
    /// - Parameter folder: where files are that the trace does not hold
    /// - Throws: ``ParityTraceError``, ``H2OCacheError``, or what reading a file throws
    package func replay(_ traced: Case, in folder: URL) throws -> ParityResult {
        let arrays = try arrays(of: traced, in: folder)
        let caches = try (0 ..< traced.layers).map { _ in
            try traced.kv.makeCache(traced.config, groupSize: traced.groupSize)
        }
        var result = ParityResult(
            name: traced.name, dtype: traced.dtype, layers: traced.layers,
            steps: traced.steps.count)
        for step in traced.steps.indices {
            for (layer, cache) in caches.enumerated() {
                do {
                    try replay(traced, layer, step, on: cache, arrays, &result)
                } catch let error as MLXError {
                    // The cache's state is lost: there is nothing to compare after it.
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
        _ traced: Case, _ layer: Int, _ step: Int, on cache: any H2OScoreTracking,
        _ arrays: ParityArrays, _ result: inout ParityResult
    ) throws {
        let comparison = ParityComparison(
            layer: layer, step: step, tolerance: Float(traced.tolerance))
        func given(_ name: String) throws -> MLXArray {
            let array = try arrays(layer, step, name)
            return traced.type.map { array.asType($0) } ?? array
        }
        let (keys, values) = (try given("k"), try given("v"))
        if traced.routed {
            let queries = try given("q")
            let output = try withError {
                attentionWithCacheUpdate(
                    queries: queries, keys: keys, values: values, cache: cache,
                    scale: traced.scale, mask: traced.steps[step] > 1 ? .causal : .none)
            }
            comparison.outputs(output, try arrays(layer, step, "out"), in: &result)
        } else {
            try withError {
                _ = cache.update(keys: keys, values: values)
                cache.settle()
            }
        }
        guard let positions = cache.positions else { throw ParityTraceError.emptyCache }
        let tracedPositions = try arrays(layer, step, "positions")
        comparison.positions(positions, tracedPositions, in: &result)
        if traced.config.recall != nil {
            guard let held = cache.held else { throw ParityTraceError.emptyCache }
            comparison.held(
                (positions, held), (tracedPositions, try arrays(layer, step, "held")), in: &result)
        }
        if traced.routed {
            guard let scores = cache.scores else { throw ParityTraceError.emptyCache }
            comparison.scores(
                (positions, scores), (tracedPositions, try arrays(layer, step, "scores")),
                within: Float(traced.scoreTolerance), in: &result)
        }
    }
}
