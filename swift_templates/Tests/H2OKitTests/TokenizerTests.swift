import Foundation
import H2OKit
import XCTest

/// The bundled tokenizer gives the ids that Python's gives. `H2O_TOKENIZER_PROBES` names a
/// file with texts, or users' messages, and Python's ids; `H2O_MODEL_DIR` names the model's
/// folder.
final class TokenizerTests: XCTestCase {
    private struct Probe: Decodable {
        let text: String?
        let message: String?
        let ids: [Int]
    }

    func testItGivesPythonsIds() async throws {
        let environment = ProcessInfo.processInfo.environment
        guard let path = environment["H2O_TOKENIZER_PROBES"] else {
            throw XCTSkip("H2O_TOKENIZER_PROBES is not set")
        }
        let probes = try JSONDecoder().decode(
            [Probe].self, from: Data(contentsOf: URL(filePath: path)))
        let tokenizer = try await BundledTokenizerLoader().load(from: ModelFolder.find())

        XCTAssertGreaterThan(probes.count, 5)
        for probe in probes {
            if let message = probe.message {
                let ids = try tokenizer.applyChatTemplate(
                    messages: [["role": "user", "content": message]])
                XCTAssertEqual(ids, probe.ids, "of the message \(message.debugDescription)")
            } else if let text = probe.text {
                let ids = tokenizer.encode(text: text, addSpecialTokens: true)
                XCTAssertEqual(ids, probe.ids, "of \(text.debugDescription)")
                let decoded = tokenizer.decode(tokenIds: probe.ids, skipSpecialTokens: false)
                XCTAssertEqual(decoded, text)
            }
        }
    }

    func testAFolderWithoutATokenizerIsAnError() async throws {
        let empty = FileManager.default.temporaryDirectory.appending(path: UUID().uuidString)
        do {
            _ = try await BundledTokenizerLoader().load(from: empty)
            XCTFail("nothing was thrown")
        } catch {
            XCTAssertFalse(error.localizedDescription.isEmpty)
        }
    }
}
