import Foundation
import H2OKit
import XCTest

/// Replays a trace of the Python cache. `H2O_PARITY_TRACE` names the trace's folder, and
/// `H2O_PARITY_REPORT` the file for the report.
final class ParityReplayTests: XCTestCase {
    func testTheCacheDoesWhatPythonsDid() throws {
        let environment = ProcessInfo.processInfo.environment
        guard let path = environment["H2O_PARITY_TRACE"] else {
            throw XCTSkip("H2O_PARITY_TRACE names no trace; `h2o-pack parity` records one.")
        }
        let folder = URL(filePath: path, directoryHint: .isDirectory)
        let trace = try ParityTrace(contentsOf: folder.appending(path: "trace.json"))
        var report = ParityReport()

        let outcome = Result {
            for traced in trace.cases {
                report.cases.append(try trace.replay(traced, in: folder))
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
}

/// The result of a replay, for `h2o-pack parity`.
struct ParityReport: Encodable {
    let format = 1
    var cases = [ParityResult]()

    func write(to file: URL) throws {
        let encoder = JSONEncoder()
        encoder.keyEncodingStrategy = .convertToSnakeCase
        encoder.outputFormatting = [.prettyPrinted, .sortedKeys]
        try encoder.encode(self).write(to: file)
    }
}
