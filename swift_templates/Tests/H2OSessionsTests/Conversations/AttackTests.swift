import Foundation
import XCTest

@testable import H2OSessions

/// Tests schemas and saved conversations that a program changed at random. Each must be refused or
/// used, without a crash.
final class AttackTests: XCTestCase {
    private static let reply = #"{"name":"ab12","nick":"x","age":5.9,"tags":["a",1],"next":[{}]}"#
    private let options = H2OSession.Options(sampling: .greedy, maxTokens: 4)

    /// Reads everything in the folder `H2O_CONVERSATION`: files are schemas, with which a
    /// reply is checked; folders are conversations. Prints each name first, so that the last name
    /// shows what ended the process, and then why a conversation was refused.
    func testEachIsRefusedOrUsed() async throws {
        guard let folder = ConversationSettings.folder else {
            throw XCTSkip("H2O_CONVERSATION names no folder with changed files.")
        }
        let model = try await ConversationSettings.model()
        for name in try FileManager.default.contentsOfDirectory(atPath: folder.path).sorted() {
            FileHandle.standardOutput.write(Data("conversation: \(name)\n".utf8))
            let place = folder.appending(path: name)
            if name.hasSuffix(".json") {
                let schema = String(decoding: try Data(contentsOf: place), as: UTF8.self)
                onAppThread { try? H2OSchema(schema).check(Self.reply) }
            } else {
                await goOn(from: place, model)
            }
        }
    }

    private func goOn(from folder: URL, _ model: H2OModel) async {
        let session: H2OSession
        do {
            session = try await H2OSession.restore(from: folder, model: model, options: options)
        } catch {
            FileHandle.standardOutput.write(Data("refused: \(error)\n".utf8))
            return
        }
        _ = try? await session.respond(to: "more")
        try? await session.save(to: folder)
        try? await session.keep(2)
        _ = try? await session.respond(to: "other")
    }
}
