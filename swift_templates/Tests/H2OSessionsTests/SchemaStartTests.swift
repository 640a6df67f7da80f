import Foundation
import H2OKit
import H2OSessions
import XCTest

/// What the first schemas of a process take with the tokenizer in the folder that
/// `H2O_VOCABULARY` names; `python -m studies.guided` writes it and reads the report.
final class SchemaStartTests: XCTestCase {
    func testTheFirstSchemasTakeTheTimeThatIsReported() async throws {
        guard let path = ProcessInfo.processInfo.environment["H2O_VOCABULARY"] else {
            throw XCTSkip("H2O_VOCABULARY names no tokenizer; `python -m studies.guided` does.")
        }
        let folder = URL(filePath: path, directoryHint: .isDirectory)
        let tokenizer = try await BundledTokenizerLoader().load(from: folder)
        let stop = try XCTUnwrap(tokenizer.eosTokenId)
        let grammars = SchemaGrammars(tokenizer: tokenizer, endOfTurn: stop, stops: [stop])
        let schemas = [
            #"{"type": "object", "properties": {"city": {"type": "string"}}}"#,
            #"{"type": "array", "items": {"type": "number", "minimum": 3}}"#,
        ]

        let seconds = try schemas.map { text in
            let schema = try H2OSchema(text)
            let started = clock()
            _ = try grammars.processor(for: schema, atMost: 160)
            return Double(clock() - started) / Double(CLOCKS_PER_SEC)
        }

        try JSONEncoder().encode(seconds).write(to: folder.appending(path: "seconds.json"))
    }
}
