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
                maxSize: 48, recentBudget: 8, novelty: 0,
                recall: H2ORecall(rows: 16, ask: 4, every: 3, store: store)), .dense)
    }

    /// Makes a cache whose oldest segments are only in files; they are written in the background.
    private func stored() throws -> H2OKVCache {
        let cache = try cache("layer-000")
        H2OCaches.join([cache])
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
        H2OCaches.join([inMemory])
        for _ in 0 ..< (original?.offset ?? 0) / 300 { inMemory.attend(Tokens(300, seed: 1)) }
        original = nil  // releases the archive's lock
        let elsewhere = folder.appending(path: "elsewhere", directoryHint: .isDirectory)
        try copyFiles(to: elsewhere)
        let expected = inMemory.attend(Tokens(9, seed: 2))

        for place in [folder, elsewhere] {
            let caches = try H2OCacheFile.load(from: file, archive: place).caches

            let cache = try XCTUnwrap(caches.evicting.first)
            XCTAssertEqual(cache.attend(Tokens(9, seed: 2)), expected)
            XCTAssertEqual(cache.recalled?.archiveBytes, inMemory.recalled?.archiveBytes)
        }
    }

    func testACopyGoesOnInAFolderOfItsOwn() throws {
        let original = try stored()
        let own = folder.appending(path: "own", directoryHint: .isDirectory)
        try copyFiles(to: own)

        let copies = try [original as any KVCache].copied(archive: own)
        let copy = try XCTUnwrap(copies.evicting.first)

        XCTAssertEqual(copy.attend(Tokens(300, seed: 2)), original.attend(Tokens(300, seed: 2)))
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
            XCTAssertEqual(failure.problem, .notGiven)
        }
        XCTAssertThrowsError(try H2OCacheFile.load(from: file, archive: folder)) { error in
            guard case .archive? = error as? H2OCacheError else { return XCTFail("\(error)") }
            XCTAssertTrue(error.localizedDescription.contains("layer-000"), "\(error)")
        }
    }
}

extension String {
    /// Whether a saved archive says that whole segments are in files.
    fileprivate var isStored: Bool { contains("archive.count=") && !contains("archive.count=0\n") }
}
