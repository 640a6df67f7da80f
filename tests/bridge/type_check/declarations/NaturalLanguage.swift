@_exported import AppleFoundation

public struct NLLanguage: Hashable, Sendable {
    public static let english = NLLanguage()
}

open class NLContextualEmbedding: NSObject {
    public enum AssetsResult: Sendable { case available, notAvailable, error }

    public init?(language: NLLanguage) {}
    open var dimension: Int { fatalError() }
    open var hasAvailableAssets: Bool { fatalError() }
    open func requestAssets() async throws -> AssetsResult { fatalError() }
    open func load() throws {}
    open func embeddingResult(
        for string: String, language: NLLanguage?
    ) throws -> NLContextualEmbeddingResult { fatalError() }
}

open class NLContextualEmbeddingResult: NSObject {
    public func enumerateTokenVectors(
        in range: Range<String.Index>, using block: ([Double], Range<String.Index>) -> Bool
    ) {}
}
