import Foundation
import H2OKit
import MLX
import MLXLMCommon
import XCTest

/// Tests an archive in files, which has one folder per layer.
final class ArchiveFilesTests: FolderTestCase {
    private func cache(_ name: String?) throws -> H2OKVCache {
        let store = name.map { folder.appending(path: $0).path }
        return H2OKVCache(
            try H2OConfiguration(
                maxSize: 48, recentBudget: 8,
                recall: H2ORecall(ask: 4, reach: 8, store: store)), .dense)
    }

    /// Makes a cache whose oldest segments are only in files; they are written in the background.
    private func stored() throws -> H2OKVCache {
        let cache = try cache("layer-000")
        for _ in 0 ..< 100 where try !XCTUnwrap(cache.metaState.first).isStored {
            cache.attend(Tokens(300, seed: 1))
        }
        XCTAssertTrue(try XCTUnwrap(cache.metaState.first).isStored)
        return cache
    }

    func testASavedCacheGoesOnFromItsFilesAlsoIfTheyWereMoved() throws {
        var original: H2OKVCache? = try stored()
        let file = folder.appending(path: "cache.safetensors")
        try H2OCacheFile.save([XCTUnwrap(original)], to: file)
        let inMemory = try cache(nil)
        for _ in 0 ..< (original?.offset ?? 0) / 300 { inMemory.attend(Tokens(300, seed: 1)) }
        original = nil  // releases the archive's lock
        let elsewhere = folder.appending(path: "elsewhere", directoryHint: .isDirectory)
        try copyFiles(to: elsewhere)
        let next = [9, 1].map { Tokens($0, seed: 2) }
        let expected = next.map { inMemory.attend($0) }

        for place in [folder, elsewhere] {
            let caches = try H2OCacheFile.load(from: file, archive: place).caches

            let cache = try XCTUnwrap(caches.evicting.first)
            XCTAssertEqual(next.map { cache.attend($0) }, expected)
            XCTAssertEqual(cache.recalled?.archiveBytes, inMemory.recalled?.archiveBytes)
        }
    }

    func testACopyGoesOnInAFolderOfItsOwn() throws {
        let original = try stored()
        let own = folder.appending(path: "own", directoryHint: .isDirectory)
        try copyFiles(to: own)

        let copies = try [original as any KVCache].copied(archive: own)
        let copy = try XCTUnwrap(copies.evicting.first)

        for count in [300, 1] {
            let tokens = Tokens(count, seed: 2)
            XCTAssertEqual(copy.attend(tokens), original.attend(tokens))
        }
        XCTAssertEqual(copy.recalled?.archiveBytes, original.recalled?.archiveBytes)
        XCTAssertTrue(try XCTUnwrap(copy.metaState.first).isStored)
        let store = try XCTUnwrap(copy.configuration.recall?.store)
        XCTAssertTrue(store.hasSuffix("own/layer-000"), store)
        XCTAssertTrue(copy.metaState[0].contains("\narchive.folder=layer-000\n"))
        XCTAssertFalse(copy.metaState[0].contains(folder.path))
    }

    private func copyFiles(to other: URL) throws {
        try FileManager.default.createDirectory(at: other, withIntermediateDirectories: true)
        try FileManager.default.copyItem(
            at: folder.appending(path: "layer-000"), to: other.appending(path: "layer-000"))
    }

    func testAFolderThatFailsEndsRecallWithOneNoticeAndTheConversationGoesOn() throws {
        let unusable = try cache("a-file")
        try write("", to: "a-file")
        let lost = try stored()
        let layer = folder.appending(path: "layer-000")
        repeat {  // once more if a segment was being written
            try? FileManager.default.removeItem(at: layer)
        } while FileManager.default.fileExists(atPath: layer.path)

        // Of a lost folder, what comes first is told: a token reads, or a segment is written.
        for (cache, codes) in [
            (unusable, ["archive_unusable"]), (lost, ["archive_not_read", "archive_not_written"]),
        ] {
            let notices = Notices()
            MLXFast.h2oTell { notices.add($0.code) }
            defer { MLXFast.h2oTell { _ in } }
            for count in [60, 1, 1, 9, 1] {
                let answer = cache.attend(Tokens(count, seed: 3))
                XCTAssertTrue(answer.allSatisfy { $0.isFinite })
            }

            XCTAssertNil(cache.recalled)
            XCTAssertEqual(notices.codes.count, 1)
            XCTAssertTrue(codes.contains(notices.codes.joined()), "\(notices.codes)")
            XCTAssertEqual(cache.length, 48)
        }
    }

    func testASavedCacheWithoutItsFilesIsRefused() throws {
        var original: H2OKVCache? = try stored()
        let file = folder.appending(path: "cache.safetensors")
        try H2OCacheFile.save([XCTUnwrap(original)], to: file)
        original = nil
        try FileManager.default.removeItem(at: folder.appending(path: "layer-000"))

        XCTAssertThrowsError(try H2OCacheFile.load(from: file)) { error in
            guard case .archive(let failure)? = error as? H2OCacheError else {
                return XCTFail("\(error)")
            }
            XCTAssertEqual(failure.code, "archive_not_given")
        }
        XCTAssertThrowsError(try H2OCacheFile.load(from: file, archive: folder)) { error in
            guard case .archive? = error as? H2OCacheError else { return XCTFail("\(error)") }
            XCTAssertTrue(error.localizedDescription.contains("layer-000"), "\(error)")
        }
    }
}

/// The codes of the notices of caches.
private final class Notices: @unchecked Sendable {
    private(set) var codes = [String]()

    func add(_ code: String) { codes.append(code) }
}

extension String {
    /// Whether a saved archive says that whole segments are in files.
    fileprivate var isStored: Bool { contains("archive.count=") && !contains("archive.count=0\n") }
}
