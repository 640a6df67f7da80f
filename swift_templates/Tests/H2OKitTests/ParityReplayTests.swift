import Foundation
import H2OKit
import MLX
import MLXLMCommon
import XCTest

/// Replays a trace of the Python cache: `H2O_PARITY_TRACE` names its folder, and
/// `H2O_PARITY_REPORT` the file that takes the report.
final class ParityReplayTests: XCTestCase {
    func testTheCacheDoesWhatPythonsDid() throws {
        let environment = ProcessInfo.processInfo.environment
        guard let path = environment["H2O_PARITY_TRACE"] else {
            throw XCTSkip("H2O_PARITY_TRACE names no trace; `h2o-pack parity` records one.")
        }
        let folder = URL(filePath: path, directoryHint: .isDirectory)
        let trace = try ParityTrace(folder: folder)
        var report = ParityReport()

        let outcome = Result {
            for traced in trace.cases {
                report.cases.append(try replay(traced, in: folder))
            }
        }

        if let file = environment["H2O_PARITY_REPORT"] {
            try report.write(to: URL(filePath: file))
        }
        for result in report.cases {
            if let first = result.firstDifference {
                XCTFail(
                    "\(result.name): layer \(first.layer), step \(first.step), "
                        + "\(first.kind.rawValue): \(first.detail)")
            }
        }
        try outcome.get()
    }

    private func replay(_ traced: ParityTrace.Case, in folder: URL) throws -> ParityReport.Case {
        let arrays = try ParityArrays(file: folder.appending(path: traced.file))
        let caches = try (0 ..< traced.layers).map { _ in
            try traced.kv.makeCache(traced.config, groupSize: traced.groupSize)
        }
        var result = ParityReport.Case(
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
        _ traced: ParityTrace.Case, _ layer: Int, _ step: Int, on cache: any H2OScoreTracking,
        _ arrays: ParityArrays, _ result: inout ParityReport.Case
    ) throws {
        let comparison = ParityComparison(layer: layer, step: step, tolerance: traced.tolerance)
        let keys = try arrays(layer, step, "k")
        let values = try arrays(layer, step, "v")
        if traced.routed {
            let queries = try arrays(layer, step, "q")
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
        let positions = try XCTUnwrap(cache.positions)
        let tracedPositions = try arrays(layer, step, "positions")
        comparison.positions(positions, tracedPositions, in: &result)
        if traced.config.recall != nil {
            comparison.held(
                (positions, try XCTUnwrap(cache.held)),
                (tracedPositions, try arrays(layer, step, "held")), in: &result)
        }
        if traced.routed {
            comparison.scores(
                (positions, try XCTUnwrap(cache.scores)),
                (tracedPositions, try arrays(layer, step, "scores")), in: &result)
        }
    }
}
