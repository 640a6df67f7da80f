import Foundation
import H2OKit
import MLX
import MLXLMCommon

/// A word of a message, with the white space after it, and how much of the word the caches keep.
public struct H2ORememberedWord: Hashable, Sendable {
    public let text: String
    /// The share of KV heads that keep the word's tokens; 0...1. It is 1 for text that no cache has
    /// read yet, because the next reply reads it.
    public let share: Float
    /// Whether recall brought some of the word's tokens back for the last reply.
    public let isRecalled: Bool
}

/// Memory at a moment, in bytes.
public struct H2OMemoryReading: Hashable, Sendable {
    /// Bytes of MLX's arrays.
    public let active: Int
    /// Bytes that the process may still allocate; nil if the system does not report it.
    public let free: Int?
    /// Bytes that the model was planned to take; nil for a model without a plan.
    public let planned: Int?
    /// Tokens that the conversation's caches have read; 0 without a conversation.
    public let tokens: Int
    /// Additional bytes that the caches would take if they kept all tokens in the same storage and
    /// had no archive.
    public let evicted: Int

    /// The value of ``active`` if the caches kept all tokens.
    public var unbounded: Int { active + max(0, evicted) }

    /// Bytes that the process may take in total; nil if the system does not report it.
    public var limit: Int? { free.map { active + $0 } }
}

extension H2OMemoryReading {
    /// - Parameter caches: the conversation's caches; empty without a conversation
    init(_ model: LoadedModel, _ caches: [any KVCache] = []) {
        active = Memory.activeMemory
        free = model.platform.memory.free
        planned = model.plan?.total
        let evicting = caches.evicting
        tokens = evicting.map(\.offset).max() ?? 0
        let archive = model.archiveInFiles ? nil : H2ORecallStatistics(evicting)?.archiveBytes
        evicted = evicting.map(\.evictedBytes).reduce(0, +) - (archive ?? 0)
    }
}

extension H2OKVCache {
    /// Bytes that the evicted rows would take. A cache that has evicted rows is full, so its bytes
    /// divided by its rows are the bytes of one row.
    fileprivate var evictedBytes: Int {
        let most = configuration.maxSize
        return offset > most ? Int(Double(rowBytes) * Double(offset - most) / Double(most)) : 0
    }
}

extension Conversation {
    /// Positions of messages' texts, by the messages' indices.
    package var texts: [Int: Range<Int>] { state?.texts ?? [:] }

    /// The memory in use now.
    package var memory: H2OMemoryReading { H2OMemoryReading(loaded, caches) }

    /// Notes the positions of messages' texts among the tokens that are read next.
    ///
    /// - Parameters:
    ///   - tokens: the messages, with the template's special tokens around them
    ///   - position: the position of the first token
    func locate(_ messages: ArraySlice<H2OMessage>, in tokens: [Int], from position: Int) {
        let tokenizer = loaded.context.tokenizer
        var rest = tokens[...]
        for (index, message) in zip(messages.indices, messages) {
            guard message.role == .user || message.role == .assistant else { continue }
            let text = message.text.trimmingCharacters(in: .whitespacesAndNewlines)
            let all = tokenizer.encode(text: text, addSpecialTokens: false)
            // The first and the last token of a text may also contain a part of a special token.
            let ends = all.count > 4 ? 1 : 0
            let inner = all.dropFirst(ends).dropLast(ends)
            guard !inner.isEmpty, let match = rest.firstRange(of: inner) else { continue }
            let range = (match.lowerBound - ends ..< match.upperBound + ends)
                .clamped(to: 0 ..< tokens.count)
            state?.texts[index] = position + range.lowerBound ..< position + range.upperBound
            rest = rest[match.upperBound...]
        }
    }

    /// The words of messages, by the messages' indices.
    package func words(of messages: [H2OMessage]) async -> [Int: [H2ORememberedWord]] {
        let positions = await keptPositions
        var words = [Int: [H2ORememberedWord]]()
        for (index, message) in messages.enumerated() {
            guard message.role == .user || message.role == .assistant else { continue }
            words[index] = self.words(of: message.text, at: state?.texts[index], positions)
        }
        return words
    }

    /// The words of a text at these positions. Tokens are counted line by line, and assigned to the
    /// words of a line in proportion to the words' lengths.
    private func words(
        of text: String, at positions: Range<Int>?, _ kept: H2OKeptPositions
    ) -> [H2ORememberedWord] {
        let lines = text.lines.map { line in
            let count = loaded.context.tokenizer.encode(text: line, addSpecialTokens: false).count
            return (line: line, tokens: Double(max(1, count)))
        }
        guard let positions, positions.upperBound <= kept.count else {
            return lines.flatMap(\.line.words).map {
                H2ORememberedWord(text: $0, share: 1, isRecalled: false)
            }
        }
        let scale = Double(positions.count) / lines.map(\.tokens).reduce(0, +)
        var (words, place) = ([H2ORememberedWord](), Double(positions.lowerBound))
        for (line, tokens) in lines {
            let perByte = tokens * scale / Double(max(1, line.utf8.count))
            for word in line.words {
                let end = place + perByte * Double(word.utf8.count)
                let first = min(Int(place + 0.5), positions.upperBound - 1)
                let range = first ..< min(max(first + 1, Int(end + 0.5)), positions.upperBound)
                place = end
                words.append(
                    H2ORememberedWord(
                        text: word, share: kept.share(of: range),
                        isRecalled: kept.recalledShare(of: range) > 0))
            }
        }
        return words
    }
}

extension String {
    /// The text's lines, each with the newline that ends it.
    fileprivate var lines: [String] {
        var lines = split(separator: "\n", omittingEmptySubsequences: false).map { $0 + "\n" }
        lines[lines.count - 1].removeLast()
        return lines.filter { !$0.isEmpty }.map(String.init)
    }

    /// The text's words, each with the white space after it; white space at the beginning is a word
    /// too.
    fileprivate var words: [String] {
        var words = [String]()
        var isInSpace = false
        for character in self {
            if words.isEmpty || isInSpace && !character.isWhitespace { words.append("") }
            words[words.count - 1].append(character)
            isInSpace = character.isWhitespace
        }
        return words
    }
}

extension H2OSession {
    /// The memory in use now, and the memory that caches would take if they kept all tokens.
    public var memory: H2OMemoryReading {
        get async { await conversation.memory }
    }

    /// The words of each message and how much of them the caches keep, by the messages' indices. A
    /// reply that is being generated is not included.
    public var rememberedWords: [Int: [H2ORememberedWord]] {
        get async { await conversation.words(of: messages) }
    }

    /// The longest beginning of a text that ends with a paragraph and leaves room in the model's
    /// context for a conversation about the text.
    package func beginning(of text: String) async -> String {
        guard let positions = model.loaded.facts.positions else { return text }
        let tokenizer = model.loaded.context.tokenizer
        let tokens = tokenizer.encode(text: text, addSpecialTokens: false).count
        let most = positions / 4 * 3
        guard tokens > most else { return text }
        let beginning = String(text.prefix(text.count * most / tokens))
        return beginning.range(of: "\n\n", options: .backwards).map {
            String(beginning[..<$0.lowerBound])
        } ?? beginning
    }
}
