import Foundation
import MLXLMCommon

/// A source of random numbers with a fixed seed.
package struct SeededNumbers: RandomNumberGenerator {
    private var state: UInt64

    package init(_ seed: UInt64) { state = seed }

    package mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var mixed = (state ^ (state >> 30)) &* 0xBF58_476D_1CE4_E5B9
        mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
        return mixed ^ (mixed >> 31)
    }
}

/// A tokenizer that decodes like one of the usual kinds. Its vocabulary is small: bytes, frequent
/// pieces of words, and special tokens.
package struct TextTokenizer: Tokenizer {
    package enum Kind: CaseIterable, Sendable {
        /// Each token is a series of bytes.
        case bytes
        /// As ``bytes``, and decoding removes spaces before punctuation.
        case bytesWithCleanUp
        /// Tokens are text, with "▁" for a space, or a byte. Decoding removes the first space.
        case byteFallback
        /// As ``byteFallback``, but one invalid byte makes all bytes beside it invalid.
        case strictByteFallback
        /// As ``byteFallback``, and decoding removes spaces before punctuation.
        case byteFallbackWithCleanUp
        /// Tokens are words, with a space between them, or continue a word, with "##".
        case words
    }

    package let kind: Kind
    private let tokens: [String]
    private let ids: [String: Int]

    package let bosToken: String? = "<s>"
    package let eosToken: String? = "</s>"
    package let unknownToken: String? = nil

    private static let special: Set<String> = ["<s>", "</s>", "<|mark|>"]
    private static let pieces = [
        " the", " a", " 've", " 's", "n't", " n't", " do", "do", "ing", " ,", ", ", " .", ".", " !",
        "!=", " !=", "  ", "    ", "\n", "\n\n", "\r\n", "\t", " '", "' ", "'", " ' ", "m", " 're",
        "é", "e", "\u{301}", "\u{200D}", "👩", "🏽", "🇩", "🇪", "日本", "語", "{\"", "\": ", "}",
        "\u{FFFD}",
        " ", ",", "?", "x", "1", "<think>", "</think>",
    ]

    package init(_ kind: Kind) {
        self.kind = kind
        let bytes = (0 ..< 256).map { "<0x" + String(format: "%02X", $0) + ">" }
        let words = kind == .words
        tokens =
            Self.special.sorted()
            + (words ? ["a", "##b", "##ing", ",", "'", "s", "."] : bytes + Self.pieces)
        ids = Dictionary(zip(tokens, tokens.indices), uniquingKeysWith: { first, _ in first })
    }

    package var count: Int { tokens.count }

    package func encode(text: String, addSpecialTokens: Bool) -> [Int] {
        if kind == .words { return text.split(separator: " ").compactMap { ids[String($0)] } }
        var found = [Int]()
        var rest = Array(text.utf8)[...]
        let longest = Self.pieces.sorted { $0.utf8.count > $1.utf8.count }
        while !rest.isEmpty {
            let piece = longest.first { rest.starts(with: $0.utf8) }
            found.append(piece.flatMap { ids[$0] } ?? Self.special.count + Int(rest.first ?? 0))
            rest = rest.dropFirst(piece?.utf8.count ?? 1)
        }
        return found
    }

    package func decode(tokenIds: [Int], skipSpecialTokens: Bool) -> String {
        let names = tokenIds.map { tokens[$0] }
            .filter { !skipSpecialTokens || !Self.special.contains($0) }
        switch kind {
        case .bytes: return bytes(names)
        case .bytesWithCleanUp: return cleaned(bytes(names))
        case .byteFallback, .strictByteFallback: return withoutFirstSpace(withBytes(names))
        case .byteFallbackWithCleanUp: return cleaned(withoutFirstSpace(withBytes(names)))
        case .words:
            let text = names.map { $0.hasPrefix("##") ? String($0.dropFirst(2)) : " " + $0 }
            return cleaned(withoutFirstSpace(text.joined()))
        }
    }

    private func bytes(_ names: [String]) -> String {
        String(
            decoding: names.flatMap { name in byte(name).map { [$0] } ?? Array(name.utf8) },
            as: UTF8.self)
    }

    private func withBytes(_ names: [String]) -> String {
        var text = ""
        var run = [UInt8]()
        for name in names + [""] {
            if let byte = byte(name) {
                run.append(byte)
                continue
            }
            let isValid = String(bytes: run, encoding: .utf8) != nil
            text +=
                kind == .byteFallback || isValid
                ? String(decoding: run, as: UTF8.self)
                : String(repeating: "\u{FFFD}", count: run.count)
            text += name
            run = []
        }
        return text
    }

    private func byte(_ name: String) -> UInt8? {
        name.utf8.count == 6 && name.hasPrefix("<0x")
            ? UInt8(name.dropFirst(3).prefix(2), radix: 16) : nil
    }

    private func withoutFirstSpace(_ text: String) -> String {
        text.unicodeScalars.first == " " ? String(text.unicodeScalars.dropFirst()) : text
    }

    private func cleaned(_ text: String) -> String {
        let marks = [
            (" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't"),
            (" 'm", "'m"), (" 's", "'s"), (" 've", "'ve"), (" 're", "'re"),
        ]
        return marks.reduce(text) { $0.replacingOccurrences(of: $1.0, with: $1.1) }
    }

    package func convertTokenToId(_ token: String) -> Int? { ids[token] }

    package func convertIdToToken(_ id: Int) -> String? {
        // Bytes have other names in a vocabulary of bytes.
        guard tokens.indices.contains(id) else { return nil }
        let isNamed = kind != .bytes && kind != .bytesWithCleanUp
        return isNamed || byte(tokens[id]) == nil ? tokens[id] : "\u{120}"
    }

    package func applyChatTemplate(
        messages: [[String: any Sendable]], tools: [[String: any Sendable]]?,
        additionalContext: [String: any Sendable]?
    ) throws -> [Int] {
        throw TokenizerError.missingChatTemplate
    }
}

/// A tokenizer with only what the protocol requires: it cannot render a template without the
/// beginning of a reply.
package struct ForwardingTokenizer: Tokenizer {
    private let tokenizer: any Tokenizer
    private let onDecode: @Sendable (Int) -> Void

    /// - Parameter onDecode: receives the number of tokens of each decoding
    package init(
        _ tokenizer: any Tokenizer, onDecode: @escaping @Sendable (Int) -> Void = { _ in }
    ) {
        (self.tokenizer, self.onDecode) = (tokenizer, onDecode)
    }

    package var bosToken: String? { tokenizer.bosToken }
    package var eosToken: String? { tokenizer.eosToken }
    package var unknownToken: String? { tokenizer.unknownToken }

    package func encode(text: String, addSpecialTokens: Bool) -> [Int] {
        tokenizer.encode(text: text, addSpecialTokens: addSpecialTokens)
    }

    package func decode(tokenIds: [Int], skipSpecialTokens: Bool) -> String {
        onDecode(tokenIds.count)
        return tokenizer.decode(tokenIds: tokenIds, skipSpecialTokens: skipSpecialTokens)
    }

    package func convertTokenToId(_ token: String) -> Int? { tokenizer.convertTokenToId(token) }

    package func convertIdToToken(_ id: Int) -> String? { tokenizer.convertIdToToken(id) }

    package func applyChatTemplate(
        messages: [[String: any Sendable]], tools: [[String: any Sendable]]?,
        additionalContext: [String: any Sendable]?
    ) throws -> [Int] {
        try tokenizer.applyChatTemplate(
            messages: messages, tools: tools, additionalContext: additionalContext)
    }
}
