import Foundation
import H2OKit
import MLX
import MLXLMCommon
import XCTest

/// Continues caches that Python wrote, and writes them again so that Python can continue them. The
/// environment variable `H2O_INTERCHANGE` names the folder.
///
/// `interchange.json` lists cases by name. For each case, `NAME.python` has Python's caches, and
/// `NAME.steps` has the next steps: `step.q`, `step.k` and `step.v`, and for each cache the
/// expected `cache.step.out` and `cache.step.positions`. The test writes its caches to
/// `NAME.swift`.
final class InterchangeTests: XCTestCase {
    private struct Interchange: Decodable {
        let situations: [Situation]
    }

    private struct Situation: Decodable {
        let name: String
        /// The number of tokens of each step.
        let steps: [Int]
        let scale: Float
        let tolerance: Float
    }

    func testCachesOfPythonGoOnHere() throws {
        guard let path = ProcessInfo.processInfo.environment["H2O_INTERCHANGE"] else {
            throw XCTSkip("H2O_INTERCHANGE names no folder with caches that Python wrote.")
        }
        let folder = URL(filePath: path, directoryHint: .isDirectory)
        let data = try Data(contentsOf: folder.appending(path: "interchange.json"))
        for situation in try JSONDecoder().decode(Interchange.self, from: data).situations {
            func file(_ kind: String) -> URL {
                folder.appending(path: "\(situation.name).\(kind).safetensors")
            }
            let steps = try loadArrays(url: file("steps"))

            let (caches, metadata) = try H2OCacheFile.load(from: file("python"))
            try goOn(caches.evicting, situation, steps)
            try H2OCacheFile.save(caches, to: file("swift"), metadata: metadata)
        }
    }

    private func goOn(
        _ caches: [H2OKVCache], _ situation: Situation, _ arrays: [String: MLXArray]
    ) throws {
        func array(_ name: String) throws -> MLXArray { try XCTUnwrap(arrays[name], name) }
        var result = ParityResult(
            name: situation.name, dtype: "", layers: caches.count, steps: situation.steps.count)
        for (step, tokens) in situation.steps.enumerated() {
            for (index, cache) in caches.enumerated() {
                let output = attentionWithCacheUpdate(
                    queries: try array("\(step).q"), keys: try array("\(step).k"),
                    values: try array("\(step).v"), cache: cache, scale: situation.scale,
                    mask: tokens > 1 ? .causal : .none)
                let comparison = ParityComparison(
                    layer: index, step: step, tolerance: situation.tolerance)
                comparison.outputs(output, try array("\(index).\(step).out"), in: &result)
                comparison.positions(
                    try XCTUnwrap(cache.positions), try array("\(index).\(step).positions"),
                    in: &result)
            }
        }
        XCTAssertGreaterThan(result.comparisons, 0)
        if let first = result.firstDifference {
            XCTFail("\(situation.name), cache \(first.layer), step \(first.step): \(first.detail)")
        }
    }
}
