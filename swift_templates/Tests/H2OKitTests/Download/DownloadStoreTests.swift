import Foundation
import H2OKit
import XCTest

final class DownloadStoreTests: XCTestCase {
    private let fixture = DownloadFixture()

    override func tearDown() { fixture.delete() }

    func testAModelIsThereOnlyWhenAllOfItIs() throws {
        let store = try fixture.store(["config.json": "{}", "a/weights": "abcdefghi", "none": ""])
        try store.prepare()
        let names = ["0 a/weights", "4 a/weights", "8 a/weights", "0 config.json"]
        XCTAssertEqual(store.missing().map(\.name), names)

        for (piece, text) in zip(store.missing(), ["abcd", "efgh", "i", "{}"]) {
            XCTAssertNil(store.whole)
            XCTAssertTrue(try store.put(piece, from: fixture.arrived(text)))
        }
        XCTAssertEqual(store.missing(), [])
        let folder = try store.finish()

        XCTAssertEqual(store.whole, folder)
        XCTAssertEqual(try fixture.text(of: "a/weights", in: folder), "abcdefghi")
        XCTAssertEqual(try fixture.text(of: "none", in: folder), "")
        try ModelVerification.full.check(folder)
    }

    func testAPieceWithOtherBytesIsNotTaken() throws {
        let store = try fixture.store(["weights": "abcdefgh"])
        try store.prepare()
        let pieces = store.missing()

        for wrong in ["abcx", "abc", "abcde", ""] {
            XCTAssertFalse(try store.put(pieces[0], from: fixture.arrived(wrong)))
        }
        XCTAssertEqual(store.missing(), pieces)
    }

    func testAPieceThatWasWrittenHalfIsMissing() throws {
        let store = try fixture.store(["weights": "abcdefgh"])
        try store.prepare()
        for (piece, text) in zip(store.missing(), ["abcd", "efgh"]) {
            _ = try store.put(piece, from: fixture.arrived(text))
        }
        let part = fixture.root.appending(path: "\(store.version).part/weights")

        try Data("abcdef".utf8).write(to: part)
        XCTAssertEqual(store.missing().map(\.offset), [4])
        try Data("ab\0\0efgh".utf8).write(to: part)
        XCTAssertEqual(store.missing().map(\.offset), [0])
    }

    func testAnEarlierVersionGivesTheFilesThatAreTheSameAndIsDeleted() throws {
        let earlier = try whole(["config.json": "1", "weights": "abcd"])
        let store = try fixture.store(["config.json": "2", "weights": "abcd"])
        try store.prepare()

        XCTAssertEqual(store.missing().map(\.path), ["config.json"])
        XCTAssertNotNil(earlier.whole, "it stays until the new one is whole")
        for piece in store.missing() { _ = try store.put(piece, from: fixture.arrived("2")) }
        _ = try store.finish()

        XCTAssertNil(earlier.whole)
        XCTAssertNotNil(store.whole)
    }

    func testPartsOfAnotherVersionAreDeleted() throws {
        try fixture.store(["weights": "abcd"]).prepare()
        let store = try fixture.store(["weights": "efgh"])

        try store.prepare()

        let names = try FileManager.default.contentsOfDirectory(atPath: fixture.root.path)
        XCTAssertEqual(names, ["\(store.version).part"])
    }

    func testAManifestWithoutPiecesOrWithAPathOutsideIsRefused() throws {
        let outside = try ["../weights", "/weights", "a/../../weights"].map {
            try fixture.manifest([$0: "abcd"])
        }
        let whole = String(decoding: try fixture.manifest(["w": "abcd"]), as: UTF8.self)
        let others = [
            ("_size\":4", "_size\":0"), ("_size\":4", "_size\":3"), ("\"pieces\"", "\"p\""),
        ]
        .map { Data(whole.replacingOccurrences(of: $0, with: $1).utf8) }
        for manifest in outside + others {
            XCTAssertThrowsError(try DownloadStore(manifest: manifest, root: fixture.root)) {
                XCTAssertEqual($0 as? H2OLoadingError, .noPieces)
            }
        }
        let bundled = Data(#"{"format": 1, "model": "m", "files": []}"#.utf8)
        XCTAssertThrowsError(try DownloadStore(manifest: bundled, root: fixture.root)) {
            XCTAssertEqual($0 as? H2OLoadingError, .noPieces)
        }
    }

    private func whole(_ files: [String: String]) throws -> DownloadStore {
        let store = try fixture.store(files)
        try store.prepare()
        for piece in store.missing() {
            XCTAssertTrue(try store.put(piece, from: fixture.arrived(files[piece.path] ?? "")))
        }
        _ = try store.finish()
        return store
    }
}
