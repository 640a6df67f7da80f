import Foundation
import H2OKit
import MLX
import MLXLMCommon
import XCTest

final class CacheFileTests: FolderTestCase {
    private func file(_ name: String) -> URL { folder.appending(path: "\(name).safetensors") }

    private func filled(_ tokens: Int = 40) throws -> [H2OKVCache] {
        try H2OStorage.allCases.map { try $0.filledCache(tokens) }
    }

    func testCachesGoOnFromAFile() throws {
        for tokens in [3, 40] {
            let caches = try filled(tokens)

            try H2OCacheFile.save(caches, to: file("caches"), metadata: ["chat": "one"])
            let first = try H2OCacheFile.load(from: file("caches"))
            // Caches can be saved over the file that they came from.
            try H2OCacheFile.save(first.caches, to: file("caches"), metadata: first.metadata)
            let (loaded, metadata) = try H2OCacheFile.load(from: file("caches"))

            XCTAssertEqual(metadata, ["chat": "one"])
            XCTAssertEqual(loaded.count, caches.count)
            for (ours, theirs) in zip(loaded.map(\.tracking), caches) {
                XCTAssertTrue(type(of: ours) == type(of: theirs))
                XCTAssertEqual(
                    ours.attendOneByOne(20, seed: 2), theirs.attendOneByOne(20, seed: 2))
                XCTAssertEqual(ours.keptPositions, theirs.keptPositions)
            }
        }
    }

    #if os(Linux)
        func testAFullDiskIsTheSystemsErrorAndNotThatOfMLX() throws {
            let full = file("full")
            try FileManager.default.createSymbolicLink(
                at: full, withDestinationURL: URL(filePath: "/dev/full"))
            XCTAssertThrowsError(try H2OCacheFile.save(filled(), to: full)) {
                XCTAssertEqual(H2OCacheError(fileError: $0, full), .noSpace(full), "\($0)")
            }
        }
    #endif

    func testWhatIsNotAFileIsRefusedBeforeItIsRead() throws {
        let pipe = folder.appending(path: "pipe")
        XCTAssertEqual(mkfifo(pipe.path, 0o600), 0)
        let long = folder.appending(path: "long")
        try Data().write(to: long)
        try FileHandle(forUpdating: long).truncate(atOffset: 1 << 40)  // takes no room
        let device = URL(filePath: "/dev/zero")
        for name in ["pipe.safetensors", "pipe"] {
            let link = folder.appending(path: name)
            if link != pipe {
                try FileManager.default.createSymbolicLink(at: link, withDestinationURL: pipe)
            }
            XCTAssertThrowsError(try H2OCacheFile.load(from: link))
        }
        for file in [pipe, device, folder] {
            XCTAssertThrowsError(try H2OCacheFile.load(from: file))
            XCTAssertThrowsError(try FileDigest.sha256(of: file))
        }
        for file in [pipe, device, folder, long] {
            XCTAssertThrowsError(try H2OBudgets(contentsOf: file))
            let model = folder.appending(path: UUID().uuidString)
            try FileManager.default.createDirectory(at: model, withIntermediateDirectories: true)
            try FileManager.default.createSymbolicLink(
                at: model.appending(path: ModelManifest.fileName), withDestinationURL: file)
            XCTAssertThrowsError(try ModelManifest.read(in: model))
        }
    }

    func testAFileHoldsTheCachesOfOtherLayersToo() throws {
        let sliding = RotatingKVCache(maxSize: 8, keep: 1)
        let plain = KVCacheSimple()
        let recurrent = MambaCache()
        for cache in [sliding, plain, recurrent] {
            cache.state = [Tokens(5, seed: 1).keys, Tokens(5, seed: 2).keys]
        }
        sliding.metaState = ["1", "8", "256", "5", "5"]
        let caches: [any KVCache] = try filled() + [sliding, plain, recurrent]

        try H2OCacheFile.save(caches, to: file("prompt"), metadata: ["model": "tiny"])
        let (loaded, metadata) = try H2OCacheFile.load(from: file("prompt"))

        XCTAssertEqual(metadata, ["model": "tiny"])
        XCTAssertEqual(loaded.count, caches.count)
        for (ours, theirs) in zip(loaded, caches) {
            XCTAssertTrue(type(of: ours) == type(of: theirs))
            for (our, their) in zip(ours.state, theirs.state) {
                XCTAssertEqual(our.shape, their.shape)
            }
        }
        let next = H2OStorage.allCases.count
        XCTAssertEqual(loaded[next].metaState.prefix(5), sliding.metaState.prefix(5))
    }

    func testCopiesOfAllKindsOfCachesGoOnAlone() throws {
        let plain = KVCacheSimple()
        plain.state = [Tokens(5, seed: 1).keys, Tokens(5, seed: 1).values]
        let list = CacheList(try H2OStorage.sixteenBits.filledCache(), plain)

        for cache in try filled() as [any KVCache] + [list] {
            let copy = try cache.copied()
            let (own, other) = (cache.tracking, copy.tracking)
            let expected = own.attendOneByOne(20, seed: 2)

            XCTAssertEqual(copy.byteCount, cache.byteCount)
            XCTAssertGreaterThan(copy.byteCount, 0)
            XCTAssertEqual(other.offset, 40)
            XCTAssertEqual(other.attendOneByOne(20, seed: 2), expected)
            XCTAssertEqual(other.keptPositions, own.keptPositions)
        }
    }

    func testAFileInTheLayoutOfOlderVersionsIsRefused() throws {
        let keys = Tokens(5, seed: 1).keys
        var header = ["2.0": "RotatingKVCache"]
        for (j, text) in ["1", "8", "5", "5"].enumerated() { header["0.0.\(j)"] = text }
        try MLX.save(arrays: ["0.0": keys, "0.1": keys], metadata: header, url: file("older"))

        XCTAssertThrowsError(try H2OCacheFile.load(from: file("older"))) { error in
            XCTAssertEqual(
                error as? H2OCacheError,
                .otherFormat(found: "", known: ["mlx-lm"], file: file("older")))
        }
    }

    func testAFileOfAnotherKindIsRefused() throws {
        let file = file("other")
        try save(
            arrays: ["weight": Tokens(1, seed: 1).keys], metadata: ["kind": "model"], url: file)

        XCTAssertThrowsError(try H2OCacheFile.load(from: file)) { error in
            XCTAssertEqual(
                error as? H2OCacheError,
                .otherFormat(found: "model", known: ["mlx-lm"], file: file))
        }
    }

    func testTheCachesOfALayerThatHasSeveralGoOnFromAFile() throws {
        let (recurrent, plain) = (MambaCache(), KVCacheSimple())
        for cache in [recurrent, plain] as [BaseKVCache] {
            cache.state = [Tokens(5, seed: 1).keys, Tokens(5, seed: 2).keys]
        }
        for storage in H2OStorage.allCases {
            let scored = try storage.filledCache()
            try H2OCacheFile.save(
                [CacheList(recurrent, scored), CacheList(recurrent, plain)], to: file("lists"))

            let loaded = try H2OCacheFile.load(from: file("lists")).caches

            XCTAssertTrue(loaded.allSatisfy { $0 is CacheList })
            let leaves = loaded.map(\.leaves)
            XCTAssertEqual(leaves.map(\.count), [2, 2])
            XCTAssertTrue(leaves[0][0] is MambaCache && leaves[1][0] is MambaCache)
            XCTAssertTrue(leaves[1][1] is KVCacheSimple)
            XCTAssertEqual(leaves[0][0].state.map(\.shape), recurrent.state.map(\.shape))
            let own = leaves[0][1].tracking
            XCTAssertEqual(own.attendOneByOne(20, seed: 2), scored.attendOneByOne(20, seed: 2))
            XCTAssertEqual(own.keptPositions, scored.keptPositions)
        }
    }

    func testAListThatIsNoListIsRefused() throws {
        let keys = Tokens(5, seed: 1).keys
        let letters = MLXArray("H2OCacheList".unicodeScalars.map { Int32($0.value) })
        for (arrays, header) in [
            (["0.0.0": keys], [String: String]()),
            (
                ["0.0.0.0": keys, "0.0.1": letters],  // a list in a list
                ["2.1.0": "0.0.1", "2.1.1": "string"]
            ),
        ] {
            let kinds = ["2.0": "", "1.0": "CacheList"].merging(header) { own, _ in own }
            try MLX.save(arrays: arrays, metadata: kinds, url: file("list"))

            XCTAssertThrowsError(try H2OCacheFile.load(from: file("list")))
        }
    }

    func testWhatCannotBeWrittenIsRefused() throws {
        let empty = try H2OKVCache(maxSize: 16)

        for cache in [empty, CacheList(MambaCache(), empty)] as [any KVCache] {
            XCTAssertThrowsError(try H2OCacheFile.save([cache], to: file("empty"))) { error in
                XCTAssertEqual(error as? H2OCacheError, .notSavable(index: 0, found: "empty"))
            }
        }
    }
}

extension KVCache {
    /// This cache, or the first cache in a list.
    fileprivate var tracking: H2OKVCache {
        ((self as? CacheList)?[0] ?? self) as! H2OKVCache
    }
}
