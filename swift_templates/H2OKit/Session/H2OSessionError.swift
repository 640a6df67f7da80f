import Foundation

/// Why a session did not reply. Errors of the model folder are ``ModelBundleError``, and a lack
/// of memory is a ``MemoryShortage``.
public enum H2OSessionError: LocalizedError, Hashable, Sendable {
    /// Another reply is still being generated.
    case busy
    /// The prompt has no tokens.
    case emptyPrompt
    /// The system prompt, which is never evicted, does not fit into the cache together with
    /// sinks and recent tokens. Both values are numbers of tokens.
    case systemPromptTooLong(tokens: Int, atMost: Int)

    public var errorDescription: String? {
        switch self {
        case .busy:
            "The session is generating a reply. Wait until its stream ends, or call cancel()."
        case .emptyPrompt:
            "The prompt is empty."
        case .systemPromptTooLong(let tokens, let atMost):
            "The system prompt has \(tokens) tokens, and the cache can pin \(max(0, atMost)) of "
                + "them. Shorten it, or package the model with a larger --max-kv or a smaller "
                + "--recent-budget."
        }
    }
}
