import Foundation
import H2OKit
import H2OTestModels
import MLX
import MLXLMCommon
import XCTest

@testable import H2OSessions

/// The base class of tests that load a model from a folder, which sets the limits of MLX.
class ModelFolderTestCase: FolderTestCase {
    static let digest = String(repeating: "d", count: 64)
    let plan = MemoryPlan(weights: 1 << 30, caches: 0, prefill: 0, bufferCache: 1 << 20)
    private(set) var limits = (0, 0)

    override func setUpWithError() throws {
        try super.setUpWithError()
        try write(
            #"{"format": 1, "model": "m", "files": [], "digest": "\#(Self.digest)", "#
                + #""prompt_chunk": 512, "chat": {"template": true, "system": true, "tools": false, "#
                + #""drops_thoughts": false, "stops": [1], "stop_texts": []}}"#,
            to: ModelManifest.fileName)
        limits = (Memory.cacheLimit, Memory.memoryLimit)
    }

    override func tearDownWithError() throws {
        (Memory.cacheLimit, Memory.memoryLimit) = limits
        try super.tearDownWithError()
    }

    func write(_ text: String, to name: String) throws {
        try Data(text.utf8).write(to: folder.appending(path: name))
    }

    /// Loads a model from the folder.
    ///
    /// - Parameters:
    ///   - free: the free bytes; nil if the system does not report them
    ///   - archives: the folder for archives in files; nil for archives in memory
    func load(
        free: Int? = nil, configuration: H2OConfiguration? = nil, archives: URL? = nil,
        loader: any H2OModelLoader = EchoLoader(), metal: MetalCheck = MetalCheck { nil },
        background: BackgroundGuard = BackgroundGuard()
    ) async throws -> H2OModel {
        let configuration = try configuration ?? H2OConfiguration(maxSize: 32)
        return try await H2OModel.load(
            from: folder, plan: plan, caches: H2OCaches(configuration: configuration),
            archiveInFiles: archives != nil,
            platform: H2OPlatform(
                memory: MemoryGuard { free }, background: background, metal: metal,
                archives: archives ?? H2OPlatform.ownArchives),
            loader: loader)
    }
}

final class LoadingTests: ModelFolderTestCase {
    /// Bytes of the plan and of a conversation's snapshots.
    private var memory: Int { plan.total + H2OSnapshotLimits().memory }

    func testALoadedModelReplies() async throws {
        let model = try await load(free: plan.total)
        let session = model.makeSession(
            options: H2OSession.Options(sampling: .greedy, maxTokens: 4))

        let text = try await session.respond(to: "hi").content

        XCTAssertEqual(text.count, 4)
        let memory = await session.memory
        XCTAssertEqual(memory.planned, plan.total)
        XCTAssertEqual(memory.free, plan.total)
    }

    func testWithoutMemoryOrKernelsNothingIsLoaded() async throws {
        await assertThrows(
            try await load(free: plan.total - 7, loader: Unloadable()),
            H2OLoadingError.noMemory(needs: ["m": plan], free: plan.total - 7))
        await assertThrows(
            try await load(free: 0, loader: Unloadable(), metal: MetalCheck { [] }),
            H2OLoadingError.noMetalLibrary(searched: []))
    }

    func testADamagedFolderIsNotLoaded() async throws {
        try FileManager.default.removeItem(at: folder.appending(path: ModelManifest.fileName))
        await assertThrows(
            try await load(free: plan.total, loader: Unloadable()),
            H2OLoadingError.noManifest(in: folder))
    }

    func testTwoModelsHaveTheSumOfTheirLimitsAndGiveThemBack() async throws {
        var models = [try await load(free: plan.total), try await load(free: plan.total)]
        XCTAssertEqual(Memory.cacheLimit, 2 * plan.bufferCache)
        XCTAssertEqual(Memory.memoryLimit, 2 * memory)

        models.removeLast()
        XCTAssertEqual(Memory.cacheLimit, plan.bufferCache)
        XCTAssertEqual(Memory.memoryLimit, memory)
        models = []
        XCTAssertEqual(Memory.memoryLimit, limits.1)
    }

    func testSnapshotsTakeOnlyWhatThePlanAndAReserveLeave() async throws {
        let enough = plan.total + LoadedModel.reserve
        for (free, left) in [(enough - 1, -1), (enough, 0), (enough + 1000, 1000)] {
            let model = try await load(free: free)

            XCTAssertEqual(model.loaded.snapshotRoom(taken: 0), left + Memory.activeMemory)
            XCTAssertEqual(model.loaded.snapshotRoom(taken: 70), left + Memory.activeMemory)
        }
    }

    func testTheModelsFilesSayHowItIsUsed() throws {
        try write(
            #"{"temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.1}"#,
            to: "generation_config.json")
        try write(#"{"text_config": {"max_position_embeddings": 4096}}"#, to: "config.json")

        let facts = ModelFacts(in: folder)

        XCTAssertEqual(
            facts.sampling, H2OSampling(temperature: 0.6, topP: 0.95, topK: 20, minP: 0.1))
        XCTAssertEqual(facts.positions, 4096)

        try FileManager.default.removeItem(at: folder.appending(path: "config.json"))
        try write(#"{"do_sample": false, "temperature": 0.6}"#, to: "generation_config.json")

        XCTAssertEqual(ModelFacts(in: folder).sampling, .greedy)
        XCTAssertNil(ModelFacts(in: folder).positions)
    }

    func testAPromptLongerThanTheModelsPositionsIsRefused() async throws {
        try write(#"{"max_position_embeddings": 20}"#, to: "config.json")
        let session = try await load(free: plan.total)
            .makeSession(options: H2OSession.Options(maxTokens: 6))

        await assertThrows(
            try await session.respond(to: "tell me more of it"),
            H2OSessionError.promptTooLong(tokens: 26, atMost: 20))
        let stop = try await session.respond(to: "hi").usage.stop
        XCTAssertNotNil(stop)
    }

    func testAModelThatCannotBeAdaptedIsNotLoadedWithAnAdapter() async throws {
        let file = folder.appending(path: "adapters.safetensors")
        let name = "model.layers.0.self_attn.q_proj.lora_a"
        try MLX.save(arrays: [name: MLXArray([Float](repeating: 1, count: 8), [4, 2])], url: file)
        try FileManager.default.moveItem(
            at: file, to: folder.appending(path: LoadedAdapter.bundledWeights))
        try write(
            """
            {"fine_tune_type": "lora", "num_layers": 1,
             "lora_parameters": {"rank": 2, "scale": 20, "keys": ["self_attn.q_proj"]}}
            """, to: LoadedAdapter.configuration)

        await assertThrows(try await load(free: plan.total)) {
            guard case .incompatibleModelType? = $0 as? ModelAdapterError else {
                return XCTFail("\($0)")
            }
        }
    }

    func testAModelIsLoadedByTheCPUAndInTheBackgroundToo() async throws {
        let background = BackgroundGuard()
        background.close()
        let loader = EchoLoader()
        #if os(Linux) && canImport(MLXOptimizers)  // mlx-swift itself, which has no GPU there
            let usual = Device.cpu
        #else
            let usual = Device.gpu
        #endif

        let model = try await Device.withDefaultDevice(usual) {
            try await load(free: plan.total, loader: loader, background: background)
        }

        XCTAssertEqual(loader.device, .cpu)
        XCTAssertTrue(background.isClosed)
        let reply = Task { try await model.makeSession().respond(to: "hi").usage.stop }
        reply.cancel()
        await assertThrows(try await reply.value) {
            XCTAssertTrue($0 is CancellationError, "a reply waits")
        }
    }
}

final class EchoLoader: H2OModelLoader, @unchecked Sendable {
    let model = EchoModel()
    /// The device on which the model was loaded.
    private(set) var device: DeviceType?

    func load(
        from folder: URL, tokenizer: any TokenizerLoader
    ) async throws -> sending ModelContext {
        device = Device.defaultDevice().deviceType
        return model.context()
    }
}

private struct Unloadable: H2OModelLoader {
    func load(
        from folder: URL, tokenizer: any TokenizerLoader
    ) async throws -> sending ModelContext {
        XCTFail("a model was loaded")
        throw CancellationError()
    }
}

/// Tests a model that is loaded once and shared by all users.
final class SharedModelTests: XCTestCase {
    func testAllWhoAskAtTheSameTimeOrLaterHaveOneModel() async throws {
        let (fixture, loads, shared) = (try SessionFixture(), Recorder<Void>(), SharedModel())
        let load: @Sendable () async throws -> H2OModel = {
            loads.add(())
            return fixture.makeModel()
        }
        async let first = shared.model(load: load)
        async let second = shared.model(load: load)
        let models = try await [first, second, shared.model(load: load)]
        XCTAssertEqual(Set(models.map { ObjectIdentifier($0) }).count, 1)
        XCTAssertEqual(loads.entries.count, 1)
    }

    func testAModelThatNobodyHasIsReleasedAndLoadedAgain() async throws {
        let (fixture, loads, shared) = (try SessionFixture(), Recorder<Void>(), SharedModel())
        for time in 1 ... 2 {
            do {
                var model: H2OModel? = try await shared.model {
                    loads.add(())
                    return fixture.makeModel()
                }
                let session = model?.makeSession()
                model = nil
                let loaded = await shared.loaded
                XCTAssertTrue(loaded === session?.model, "a session uses the model")
                XCTAssertEqual(loads.entries.count, time)
            }
            assertEqual(try await holdsOnceReleased { await shared.loaded == nil }, true)
        }
    }

    func testAModelThatWasNotLoadedIsLoadedAgain() async throws {
        let (fixture, loads, shared) = (try SessionFixture(), Recorder<Void>(), SharedModel())
        let load: @Sendable () async throws -> H2OModel = {
            guard loads.add(()) > 0 else { throw CancellationError() }
            return fixture.makeModel()
        }
        await assertThrows(try await shared.model(load: load)) {
            XCTAssertTrue($0 is CancellationError)
        }
        let model = try await shared.model(load: load)
        XCTAssertNotNil(model)
    }
}
