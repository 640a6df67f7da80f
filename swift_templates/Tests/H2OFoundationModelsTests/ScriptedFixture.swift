#if os(Linux) && canImport(FoundationModels, _version: 2)
    import FoundationModels
    import H2OFoundationModels
    import H2OKit
    import H2OSessions
    import H2OTestModels
    import MLXLMCommon

    /// Sessions with a model that says what it is told to, behind the template of Qwen3.
    struct ScriptedFixture {
        let scripted: ScriptedModel
        let model: H2OLanguageModel

        init(thinks: Bool = true, saying replies: String...) throws {
            scripted = ScriptedModel(.qwen3, thinks: thinks)
            let tokenizer = TemplateTokenizer(.qwen3)
            let stop = tokenizer.convertTokenToId(ChatTemplate.qwen3.stop) ?? 0
            let caches = H2OCaches(configuration: try H2OConfiguration(maxSize: 2048))
            scripted.replies = replies
            let shared = H2OSharedModel { [scripted] in
                let context = ModelContext(
                    configuration: ModelConfiguration(id: "scripted", eosTokenIds: [stop]),
                    model: scripted, processor: NoProcessor(), tokenizer: tokenizer)
                return H2OModel(context: context, caches: caches).withGrammars(.qwen3)
            }
            model = H2OLanguageModel(
                shared, options: H2OSession.Options(thinking: thinks ? nil : false))
        }

        /// All that the model was given, as text.
        var given: String {
            TemplateTokenizer(.qwen3).decode(tokenIds: scripted.given, skipSpecialTokens: false)
        }
    }
#endif
