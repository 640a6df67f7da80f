import Foundation

/// The steps that made the caches of a conversation: the ids of all tokens that the caches have
/// read, and which of them were read at once.
///
/// The same steps make the same caches, so a state of which only the steps are known can be made
/// again. Copies share all complete blocks.
package struct CacheSteps: Codable, Hashable, Sendable {
    /// The number of tokens in a block.
    private static let block = 1024
    /// Marks the last token of a step.
    private static let end: Int32 = 1 << 30
    /// Marks a token that the model chose.
    private static let generated: Int32 = 1 << 29
    private static let id = generated - 1
    /// The ids that steps can have.
    ///
    /// - Parameter vocabulary: the model's number of tokens; nil if its files do not contain it
    static func tokens(_ vocabulary: Int?) -> Range<Int> { 0 ..< min(vocabulary ?? .max, Int(generated)) }

    /// Ids with marks.
    private var blocks = [[Int32]]()
    /// The ids after the last complete block.
    private var rest = [Int32]()

    package init() {}

    /// Steps that read tokens in chunks.
    package init(reading ids: [Int], _ chunks: [Int]) {
        var next = ids[...]
        for count in chunks {
            read(next.prefix(count))
            next = next.dropFirst(count)
        }
    }

    /// The number of tokens read.
    package var count: Int { blocks.count * Self.block + rest.count }

    package var ids: [Int] { entries(from: 0).map { Int($0 & Self.id) } }

    /// Adds a step that reads these tokens at once.
    package mutating func read(_ ids: some Collection<Int>) {
        for (index, id) in ids.enumerated() {
            append(Int32(id) | (index == ids.count - 1 ? Self.end : 0))
        }
    }

    mutating func add(_ step: H2OTrace.Step) {
        switch step {
        case .read(let ids): read(ids)
        case .generated(let id): write(id)
        }
    }

    /// Adds a step that reads a token that the model chose.
    package mutating func write(_ id: Int) { append(Int32(id) | Self.end | Self.generated) }

    /// The steps after the first tokens, of which the last one ends a step.
    package func steps(from count: Int = 0) -> [H2OTrace.Step] {
        var (steps, ids) = ([H2OTrace.Step](), [Int]())
        for entry in entries(from: count) {
            ids.append(Int(entry & Self.id))
            guard entry & Self.end != 0 else { continue }
            steps.append(entry & Self.generated != 0 ? .generated(ids[0]) : .read(ids))
            ids = []
        }
        return steps
    }

    /// The last ids.
    package func suffix(_ count: Int) -> [Int] {
        entries(from: max(0, self.count - count)).map { Int($0 & Self.id) }
    }

    /// The steps with the first tokens.
    package func prefix(_ count: Int) -> CacheSteps {
        guard count < self.count else { return self }
        var prefix = CacheSteps()
        let whole = count / Self.block
        prefix.blocks = Array(blocks.prefix(whole))
        let next = whole < blocks.count ? blocks[whole] : rest
        prefix.rest = Array(next.prefix(count - whole * Self.block))
        return prefix
    }

    /// All steps except the last one.
    package var beforeLast: CacheSteps {
        var count = max(0, self.count - 1)
        while count > 0, entry(count - 1) & Self.end == 0 { count -= 1 }
        return prefix(count)
    }

    /// Whether these steps begin with all of the other steps.
    package func starts(with other: CacheSteps) -> Bool {
        count >= other.count && prefix(other.count) == other
    }

    /// Whether `tokens` begin with the tokens that were read.
    package func begins(_ tokens: [Int]) -> Bool {
        tokens.count >= count && zip(entries(from: 0), tokens).allSatisfy { Int($0 & Self.id) == $1 }
    }

    /// Whether the first tokens end a step.
    package func hasStep(endingAt count: Int) -> Bool {
        count == 0 || 0 < count && count <= self.count && entry(count - 1) & Self.end != 0
    }

    /// Whether a value from a file can be right.
    func isSound(tokens: Range<Int>) -> Bool {
        var begins = true
        for entry in entries(from: 0) {
            let isEnd = entry & Self.end != 0
            guard entry >= 0, tokens.contains(Int(entry & Self.id)) else { return false }
            if entry & Self.generated != 0, !begins || !isEnd { return false }
            begins = isEnd
        }
        return begins
    }

    private func entry(_ index: Int) -> Int32 {
        let whole = index / Self.block
        return whole < blocks.count
            ? blocks[whole][index % Self.block] : rest[index - blocks.count * Self.block]
    }

    private func entries(from count: Int) -> some Sequence<Int32> {
        let whole = min(count / Self.block, blocks.count)
        let all = blocks[whole...].joined()
        return Array(all + rest).dropFirst(count - whole * Self.block)
    }

    private mutating func append(_ entry: Int32) {
        rest.append(entry)
        guard rest.count == Self.block else { return }
        blocks.append(rest)
        rest = []
    }
}

extension CacheSteps {
    /// Reads the ids with their marks, 4 bytes each, little-endian.
    package init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        let data = try container.decode(Data.self)
        guard data.count % 4 == 0 else {
            throw DecodingError.dataCorruptedError(
                in: container, debugDescription: "the steps do not have 4 bytes for each token")
        }
        let bytes = [UInt8](data)
        for index in stride(from: 0, to: bytes.count, by: 4) {
            append(
                Int32(
                    bitPattern: (0 ..< 4).reduce(UInt32(0)) {
                        $0 | UInt32(bytes[index + $1]) << (8 * $1)
                    }))
        }
    }

    package func encode(to encoder: any Encoder) throws {
        let bytes = entries(from: 0).flatMap { entry in
            (0 ..< 4).map { UInt8(truncatingIfNeeded: entry >> (8 * $0)) }
        }
        var container = encoder.singleValueContainer()
        try container.encode(Data(bytes))
    }
}
