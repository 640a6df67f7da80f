import Foundation
import H2OKit
import MLX
import MLXLMCommon

/// The speed and the memory of a model on this device.
public struct H2OMeasurements: Hashable, Sendable {
    /// What was measured after one prompt.
    public struct Run: Hashable, Sendable {
        public let promptTokens: Int
        /// Tokens of the prompt per second; nil for a prompt of one token.
        public let promptTokensPerSecond: Double?
        /// Generated tokens per second, from the median time of a token.
        public let tokensPerSecond: Double
        /// Microseconds of the generated tokens, the shortest first.
        let times: [Double]
        /// Bytes of the caches at the end, with their archives in memory.
        let bytes: Int
        /// The most bytes of MLX's arrays while the prompt was read, without those before.
        let peakBytes: Int
    }

    /// A prompt that was not measured.
    public struct LeftOut: Error, Hashable, Sendable {
        public let promptTokens: Int
        /// The reason, for the developer.
        public let reason: String
    }

    /// The measurements, the shortest prompt first.
    public let runs: [Run]
    public let leftOut: [LeftOut]
    /// The document that `h2o-pack plan --measured` compares with the plan. Its format is that of
    /// `h2o-pack bench --json`.
    public let json: String
}

extension H2OModel {
    /// Measures the model on this device: the speed of reading and writing with nothing, 4,096 and
    /// 16,384 tokens in the caches, the most memory, and how hot the device is after three minutes
    /// of work. Prompts that the model or the memory cannot hold are left out.
    ///
    /// It takes three minutes or longer, and other replies of the model wait. Keep the app open.
    ///
    /// - Throws: `CancellationError`, `H2OCacheError`, ``H2OSessionError``, or an `MLXError`
    public func measure() async throws -> H2OMeasurements {
        try await measure(prompts: [1, 4096, 16384], tokens: 64, lasting: .seconds(180))
    }

    /// - Parameters:
    ///   - prompts: numbers of tokens, each at least 1
    ///   - tokens: how many tokens to generate after each prompt
    ///   - lasting: the time after which the thermal state is read
    func measure(
        prompts: [Int], tokens: Int, lasting: Duration
    ) async throws -> H2OMeasurements {
        let (elapsed, conditions) = (loaded.platform.elapsed, loaded.platform.conditions)
        try await turns.begin()
        defer { turns.end() }
        let begun = elapsed()
        var (runs, leftOut) = ([H2OMeasurements.Run](), [H2OMeasurements.LeftOut]())
        for count in prompts {
            do {
                runs.append(try await measure(after: count, tokens))
            } catch let reason as H2OMeasurements.LeftOut {
                leftOut.append(reason)
            }
        }
        while let shortest = runs.first, elapsed() - begun < lasting, !conditions.isTooHot {
            _ = try await measure(after: shortest.promptTokens, tokens)
        }
        return H2OMeasurements(
            runs: runs, leftOut: leftOut, json: json(try document(runs, leftOut, tokens: tokens)))
    }

    /// Lets the model read a prompt with empty caches, and generate tokens.
    ///
    /// - Throws: ``H2OMeasurements/LeftOut``
    private func measure(after count: Int, _ tokens: Int) async throws -> H2OMeasurements.Run {
        func leftOut(_ reason: String) -> H2OMeasurements.LeftOut {
            H2OMeasurements.LeftOut(promptTokens: count, reason: reason)
        }
        if loaded.script != nil {
            throw leftOut("a model that answers from a script is not measured")
        }
        if let most = loaded.facts.positions, count + tokens > most {
            throw leftOut("the model can attend to \(most) tokens")
        }
        let (platform, model) = (loaded.platform, loaded.context.model)
        let folder = loaded.hasArchiveFiles ? try ConversationFolder(in: platform.archives) : nil
        let caches = try loaded.makeCaches(pinned: 0 ..< 0, archive: folder?.url)
        defer {
            platform.background.drain()
            withExtendedLifetime(folder) {}
        }
        let before = try await platform.background.withGPU {
            Memory.peakMemory = 0
            return Memory.activeMemory
        }

        var unread = prompt(of: count)[...]
        var output: LMOutput?
        let begun = platform.elapsed()
        for length in PromptCuts(chunk: loaded.chunk).lengths(from: 0, to: count) {
            if let free = platform.memory.free, free < LoadedModel.reserve {
                throw leftOut(
                    "only \(free >> 20) MiB were free after \(count - unread.count) tokens")
            }
            let input = LMInput.Text(tokens: MLXArray(Array(unread.prefix(length)), [1, length]))
            unread = unread.dropFirst(length)
            output = try await platform.background.withGPU(isLong: length > 1) {
                let output = model(input, cache: caches, state: nil)
                eval(caches.flatMap { $0.innerState() })
                return output
            }
        }
        guard let output else { throw H2OSessionError.emptyPrompt }
        let read = platform.elapsed() - begun
        let peak = Memory.peakMemory - before

        let sampler = H2OSampling.greedy.parameters(defaults: H2OSampling()).sampler()
        var loop = try await platform.background.withGPU {
            TokenLoop(
                after: output, of: [], model, caches: caches, sampler: sampler, processors: [])
        }
        var times = [Double]()
        for _ in 0 ..< max(1, tokens) {
            let begun = platform.elapsed()
            _ = try await platform.background.withGPU { loop.next() }
            times.append((platform.elapsed() - begun).seconds * 1e6)
            await Task.yield()
        }
        times.sort()
        return H2OMeasurements.Run(
            promptTokens: count,
            promptTokensPerSecond: count > 1 ? Double(count) / read.seconds : nil,
            tokensPerSecond: 1e6 / times[times.count / 2], times: times,
            bytes: loaded.bytes(of: caches), peakBytes: max(0, peak))
    }

    /// The ids of a text that repeats a sentence, which `h2o-pack bench` reads too.
    private func prompt(of count: Int) -> [Int32] {
        let sentence =
            "A cache keeps what attention looks at, and lets go of what nobody asks for. "
        let ids = loaded.context.tokenizer.encode(text: sentence, addSpecialTokens: true)
        return (0 ..< count).map { Int32(ids[$0 % ids.count]) }
    }
}

extension H2OModel {
    /// The document of `h2o-pack bench --json`, with one kind of cache. What an app does not know
    /// is empty.
    private func document(
        _ runs: [H2OMeasurements.Run], _ leftOut: [H2OMeasurements.LeftOut], tokens: Int
    ) throws -> JSONValue {
        let weights = loaded.context.model.parameters().flattened()
        let norm = weights.first { $0.0.hasSuffix("norm.weight") }
        let configuration = loaded.caches.configuration
        let name = loaded.caches.measuredName
        return .object([
            "format": .int(1),
            "machine": machine,
            "model": .string(loaded.manifest?.model ?? "unknown"),
            "dtype": .string(norm.map { "\($0.1.dtype)" } ?? "unknown"),
            "layers": .int(try loaded.context.model.newCache(parameters: nil).count),
            "max_kv": configuration.evicts ? .int(configuration.maxSize) : .null,
            "prefill_step": .int(loaded.chunk),
            "tokens": .int(tokens),
            "weights_bytes": .int(weights.map(\.1.nbytes).reduce(0, +)),
            "footprint_bytes": loaded.platform.footprint().map { .int($0) } ?? .null,
            "thermal_state": .string(loaded.platform.conditions.thermalState()?.rawValue ?? ""),
            "kernels": .array([]),
            "caches": .array(runs.map { $0.document(name) }),
            "not_measured": .array(
                leftOut.map {
                    .object([
                        "name": .string(name), "prompt_tokens": .int($0.promptTokens),
                        "reason": .string($0.reason),
                    ])
                }),
        ])
    }

    private var machine: JSONValue {
        let process = ProcessInfo.processInfo
        let unknown = [
            "processor", "system", "instruction_set", "python", "mlx", "mlx_lm", "h2o_pack", "gpu",
        ]
        let known: [String: JSONValue] = [
            "cores": .int(process.activeProcessorCount),
            "load": .null,
            "identifier": .string(MemoryPlan.machineName()),
            "system_version": .string(process.operatingSystemVersionString),
            "memory_bytes": .int(Int(process.physicalMemory)),
        ]
        return .object(known.merging(unknown.map { ($0, .string("")) }) { known, _ in known })
    }
}

extension H2OMeasurements.Run {
    fileprivate func document(_ name: String) -> JSONValue {
        .object([
            "name": .string(name),
            "title": .string("the app's caches, \(name)"),
            "prompt_tokens": .int(promptTokens),
            "tokens_per_second": .double(tokensPerSecond),
            "prompt_tokens_per_second": promptTokensPerSecond.map { .double($0) } ?? .null,
            "microseconds": .double(times[times.count / 2]),
            "first_quartile": .double(times[times.count / 4]),
            "third_quartile": .double(times[times.count * 3 / 4]),
            "bytes": .int(bytes),
            "peak_bytes": .int(peakBytes),
            "speed": .null,
        ])
    }
}

extension H2OCaches {
    /// The name of these caches in measurements.
    fileprivate var measuredName: String {
        guard configuration.evicts else {
            return storage == .sixteenBits ? "kv" : "full/\(storage.rawValue)"
        }
        return configuration.recall == nil ? storage.rawValue : "\(storage.rawValue)+recall"
    }
}

extension LoadedModel {
    /// Bytes of caches in memory, with their archives.
    fileprivate func bytes(of caches: [any KVCache]) -> Int {
        let recalled = H2ORecallStatistics(caches.evicting)
        let archive = hasArchiveFiles ? 0 : recalled?.archiveBytes ?? 0
        return caches.map(\.byteCount).reduce(0, +) + archive + (recalled?.sketchBytes ?? 0)
    }
}

extension Duration {
    /// Seconds, more than 0.
    fileprivate var seconds: Double { max(1e-9, self / .seconds(1)) }
}
