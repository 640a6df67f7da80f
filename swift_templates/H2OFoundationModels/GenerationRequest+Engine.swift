#if canImport(FoundationModels, _version: 2)
    import Foundation
    import FoundationModels
    import H2OSessions
    import MLXLMCommon

    @available(iOS 27, macOS 27, visionOS 27, *)
    extension LanguageModelExecutorGenerationRequest {
        /// The tools that the model may call now.
        var callableTools: [Transcript.ToolDefinition] {
            generationOptions.toolCallingMode?.kind == .disallowed ? [] : enabledToolDefinitions
        }
    }

    @available(iOS 27, macOS 27, visionOS 27, *)
    extension Transcript {
        /// The tools that its newest instructions name.
        var tools: [ToolDefinition] {
            for case .instructions(let instructions) in reversed() {
                return instructions.toolDefinitions
            }
            return []
        }
    }

    @available(iOS 27, macOS 27, visionOS 27, *)
    extension H2OToolDefinition {
        /// - Throws: ``H2OSessionError``
        init(_ tool: Transcript.ToolDefinition) throws {
            let parameters = try JSONDecoder().decode(
                JSONValue.self, from: Data(try tool.parameters.json.utf8))
            try self.init(
                name: tool.name, description: tool.description, parameters: parameters)
        }
    }

    @available(iOS 27, macOS 27, visionOS 27, *)
    extension GenerationSchema {
        /// JSON Schema, always the same text for the same schema.
        var json: String {
            get throws {
                let encoder = JSONEncoder()
                encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
                return String(decoding: try encoder.encode(self), as: UTF8.self)
            }
        }
    }

    @available(iOS 27, macOS 27, visionOS 27, *)
    extension H2OSession.Options {
        /// These options with those that a request states.
        ///
        /// - Throws: `H2OSessionError` for a schema that replies cannot be held to
        func applying(_ request: LanguageModelExecutorGenerationRequest) throws -> Self {
            var options = self
            options.sampling = sampling.applying(request.generationOptions)
            options.maxTokens = request.generationOptions.maximumResponseTokens ?? maxTokens
            options.thinking = request.contextOptions.reasoningLevel?.thinks ?? thinking
            options.requiresToolCall = request.generationOptions.toolCallingMode?.kind == .required
            if let schema = request.schema { options.schema = try H2OSchema(schema.json) }
            return options
        }
    }

    @available(iOS 27, macOS 27, visionOS 27, *)
    extension H2OSampling {
        /// A sampling mode replaces all that chooses among tokens, a temperature only the
        /// temperature. Temperature 0 is greedy in every mode.
        fileprivate func applying(_ options: GenerationOptions) -> H2OSampling {
            var sampling = self
            switch options.samplingMode?.kind {
            case .greedy: return .greedy
            case .randomTopK(let count, let seed):
                (sampling.topK, sampling.topP, sampling.minP) = (max(0, count), 1, 0)
                sampling.seed = seed ?? sampling.seed
            case .randomProbabilityThreshold(let threshold, let seed):
                guard threshold > 0 else { return .greedy }
                (sampling.topK, sampling.topP, sampling.minP) = (0, Float(threshold), 0)
                sampling.seed = seed ?? sampling.seed
            case nil: break
            @unknown default: break
            }
            if let temperature = options.temperature {
                sampling.temperature = Float(max(0, temperature))
            }
            return sampling
        }
    }

    @available(iOS 27, macOS 27, visionOS 27, *)
    extension ContextOptions.ReasoningLevel {
        /// Models think or do not. As in mlx-swift-lm, the custom level "no_think" means not.
        fileprivate var thinks: Bool {
            if case .custom("no_think") = self { false } else { true }
        }
    }
#endif
