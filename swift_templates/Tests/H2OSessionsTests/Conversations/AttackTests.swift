import Foundation
import XCTest

@testable import H2OSessions

/// Tests schemas and saved conversations that a program changed at random. Each must be refused or
/// used, without a crash.
final class AttackTests: XCTestCase {
    private let options = H2OSession.Options(sampling: .greedy, maxTokens: 4)

    /// Reads everything in the folder `H2O_CONVERSATION`: files are schemas, folders are
    /// conversations. Prints each name first, so that the last name shows what ended the process.
    func testEachIsRefusedOrUsed() async throws {
        guard let folder = ConversationSettings.folder else {
            throw XCTSkip("H2O_CONVERSATION names no folder with changed files.")
        }
        let model = try await ConversationSettings.model()
        for name in try FileManager.default.contentsOfDirectory(atPath: folder.path).sorted() {
            FileHandle.standardOutput.write(Data("conversation: \(name)\n".utf8))
            let place = folder.appending(path: name)
            if name.hasSuffix(".json") {
                read(try Data(contentsOf: place))
            } else {
                await goOn(from: place, model)
            }
        }
    }

    /// Runs on a thread with the default stack size of Apple's systems.
    private func read(_ schema: Data) {
        let done = DispatchSemaphore(value: 0)
        let thread = Thread {
            _ = try? H2OSchema(String(decoding: schema, as: UTF8.self))
            done.signal()
        }
        thread.stackSize = 512 << 10
        thread.start()
        done.wait()
    }

    private func goOn(from folder: URL, _ model: H2OModel) async {
        guard
            let session = try? await H2OSession.restore(
                from: folder, model: model, options: options)
        else { return }
        _ = try? await session.respond(to: "more")
        try? await session.save(to: folder)
        let messages = await session.messages
        try? await session.setMessages(Array(messages.prefix(2)))
        _ = try? await session.respond(to: "other")
    }
}
