import Foundation
import H2OKit
import XCTest

final class ModelBundleTests: FolderTestCase {
    private static let chat =
        #""template": true, "system": false, "tools": true, "stop_texts": ["\n###"], "#
        + #""drops_thoughts": true, "stops": [1, 2]"#
    /// The fields of a manifest after the list of files.
    private static let rest = #""digest": "", "prompt_chunk": 512, "chat": {\#(chat)}"#

    override func setUpWithError() throws {
        try super.setUpWithError()
        try write("abc", to: "config.json")
        // With 56 bytes, the padding of SHA-256 needs one more block.
        try write(
            "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", to: "model.safetensors")
        try write(
            """
            {"format": 1, "model": "m", "files": [
              {"path": "config.json", "size": 3, "sha256":
               "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
              {"path": "model.safetensors", "size": 56, "sha256":
               "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"}],
              \(Self.rest)}
            """, to: "manifest.json")
    }

    func testAWholeFolderPassesBothChecks() throws {
        XCTAssertEqual(try ModelManifest.check(folder).model, "m")
        XCTAssertEqual(try ModelManifest.check(folder, everyByte: true).files.count, 2)
    }

    func testAllDifferencesAreNamedAtOnce() throws {
        try FileManager.default.removeItem(at: folder.appending(path: "config.json"))
        try write("short", to: "model.safetensors")
        try write("", to: "adapter/extra.safetensors")

        XCTAssertEqual(
            problems(),
            [
                "config.json is missing",
                "model.safetensors has 5 bytes instead of 56",
                "adapter/extra.safetensors is not in the manifest",
            ])
    }

    func testOnlyTheFullCheckReadsTheBytes() throws {
        try write("abd", to: "config.json")

        XCTAssertNoThrow(try ModelManifest.check(folder))
        XCTAssertEqual(problems(everyByte: true), ["config.json has another sha256"])
    }

    func testAPathOutsideTheFolderIsRefused() throws {
        try write(
            """
            {"format": 1, "model": "m", "files": [
              {"path": "../x", "size": 3, "sha256": ""},
              {"path": "model.safetensors", "size": 56, "sha256": ""}], \(Self.rest)}
            """, to: "manifest.json")

        XCTAssertEqual(problems(), ["../x lies outside the folder"])
    }

    func testTheManifestSaysWhatTheChatTemplateDoes() throws {
        for (thinking, facts) in [
            (#""thinking": null"#, nil),
            (#""thinking": {"begin": "<t>", "end": "</t>"}"#, ("<t>", "</t>", nil)),
            (
                #""thinking": {"begin": "<t>", "end": "</t>", "variable": "think"}"#,
                ("<t>", "</t>", "think")
            ),
        ] as [(String, (begin: String, end: String, variable: String?)?)] {
            let json =
                #"{"format": 1, "model": "m", "files": [], "digest": "", "#
                + #""prompt_chunk": 512, "chat": {\#(Self.chat), \#(thinking)}}"#
            XCTAssertEqual(
                try ModelManifest.decode(Data(json.utf8)).chat,
                ChatFacts(
                    system: false,
                    thinking: facts.map {
                        ChatFacts.Thinking(begin: $0.begin, end: $0.end, variable: $0.variable)
                    },
                    dropsThoughts: true, stops: [1, 2], stopTexts: ["\n###"]))
        }
    }

    func testAFolderWithoutAReadableManifestIsRefused() throws {
        try write(
            #"{"format": 2, "model": "m", "files": [], \#(Self.rest)}"#, to: "manifest.json")
        XCTAssertThrowsError(try ModelManifest.check(folder)) {
            XCTAssertEqual($0 as? H2OLoadingError, .otherManifest(format: 2))
        }
        let manifest = try write("{", to: "manifest.json")
        XCTAssertThrowsError(try ModelManifest.check(folder)) {
            XCTAssertEqual($0 as? H2OLoadingError, .otherManifest(format: nil))
        }
        try FileManager.default.removeItem(at: manifest)
        XCTAssertThrowsError(try ModelManifest.check(folder)) {
            XCTAssertEqual($0 as? H2OLoadingError, .noManifest(in: folder))
        }
    }

    func testAModelIsLookedForNextToSources() {
        XCTAssertThrowsError(try ModelFolder.find("none")) { error in
            guard case H2OLoadingError.notFound(let searched)? = error as? H2OLoadingError else {
                return XCTFail("\(error)")
            }
            let sources = searched.map { $0.appending(path: "../../Sources/H2OKit").standardized }
            XCTAssertTrue(
                sources.contains { FileManager.default.fileExists(atPath: $0.path) }, "\(searched)")
        }
    }

    func testAFolderWithoutATokenizerIsAnError() async throws {
        do {
            _ = try await BundledTokenizerLoader().load(from: folder)
            XCTFail("nothing was thrown")
        } catch {
            XCTAssertFalse(error.localizedDescription.isEmpty)
        }
    }

    private func problems(everyByte: Bool = false) -> [String] {
        do {
            try ModelManifest.check(folder, everyByte: everyByte)
            return []
        } catch H2OLoadingError.damaged(_, let differences) {
            return differences
        } catch {
            XCTFail("\(error)")
            return []
        }
    }
}
