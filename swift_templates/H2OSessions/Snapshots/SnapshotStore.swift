import Foundation
import H2OKit

/// The bytes that a conversation's snapshots may take. A snapshot is a copy of the caches at the
/// end of a turn, from which the conversation goes on when it is edited: what comes after is
/// read again. One takes the bytes of the plan's caches.
public struct H2OSnapshotLimits: Hashable, Sendable {
    /// In memory.
    public var memory: Int
    /// In files, which are deleted with the conversation; older snapshots are there.
    public var files: Int

    public init(memory: Int = 128 << 20, files: Int = 512 << 20) {
        self.memory = memory
        self.files = files
    }

    /// No snapshots: a change reads the conversation again from its beginning, and thoughts stay in
    /// the caches.
    public static let none = H2OSnapshotLimits(memory: 0, files: 0)
}

/// A conversation's snapshots, in memory and in files, each bounded by bytes. The newest are
/// close to each other, older ones ever farther apart. Only jobs on the model's executor use it.
package struct SnapshotStore: @unchecked Sendable {
    /// A snapshot, wherever it is. Only jobs on the model's executor use it.
    package struct Entry: @unchecked Sendable {
        fileprivate let state: ConversationState
        /// Counts the snapshots that were made.
        fileprivate let moment: Int
        fileprivate let bytes: Int
        fileprivate let place: Place
    }

    fileprivate enum Place {
        case memory(ConversationSnapshot)
        case file(StoredSnapshot)
    }

    private let limits: H2OSnapshotLimits
    private let identity: () -> ConversationIdentity
    private let archives: URL
    private let root: URL
    private let room: (Int) -> Int?
    /// Made for the first file.
    private var folder: ConversationFolder?
    /// In the order in which they were made.
    private var entries = [Entry]()
    private var count = 0
    /// How many of them were forgotten together.
    private var forgotten = 0

    /// - Parameters:
    ///   - limits: bytes in memory and in files
    ///   - identity: what the conversation depends on
    ///   - archives: where archives in files go on
    ///   - root: has a folder for each conversation's files
    ///   - room: the bytes in memory that all may take, of which some take a number now; nil
    ///     if the system does not say
    package init(
        _ limits: H2OSnapshotLimits, identity: @escaping () -> ConversationIdentity,
        archives: URL, root: URL, room: @escaping (Int) -> Int? = { _ in nil }
    ) {
        self.limits = limits
        self.identity = identity
        self.archives = archives
        self.root = root
        self.room = room
    }

    /// Takes a snapshot, in place of one of the same messages. Where none go to files, some are
    /// forgotten to keep the limit in memory; otherwise ``takeExcess(allBut:planned:)`` has those to
    /// move.
    ///
    /// - Parameter planned: bytes in memory that the plan has for it, besides the limit
    package mutating func add(_ snapshot: ConversationSnapshot, planned: Int = 0) {
        remove(at: snapshot.state.chain)
        guard limits != .none else { return }
        count += 1
        entries.append(
            Entry(
                state: snapshot.state, moment: count, bytes: snapshot.byteCount,
                place: .memory(snapshot)))
        guard limits.files == 0 else { return }
        while isExcess(planned) { entries.remove(at: victim(of: memory)) }
    }

    /// Takes out the oldest snapshot in memory that should go to a file: compute its ``contents(of:)``
    /// in a step of the background guard, and ``write(_:_:)`` them outside of it.
    ///
    /// - Parameters:
    ///   - tokens: those that the conversation has read, if all should go but what shares its
    ///     buffers; nil if only those should that the limit in memory has no room for
    ///   - planned: bytes in memory that the plan has for the newest, besides the limit
    /// - Returns: nil if there is none
    package mutating func takeExcess(allBut tokens: Int? = nil, planned: Int = 0) -> Entry? {
        guard limits.files > 0, tokens != nil || isExcess(planned) else { return nil }
        return memory.first { entries[$0].state.read.count != tokens }
            .map { entries.remove(at: $0) }
    }

    /// What the file of a snapshot in memory will have; nil if it is in a file.
    ///
    /// - Throws: `H2OCacheError.notSavable`
    func contents(of entry: Entry) throws -> SnapshotFile.Computed? {
        guard case .memory(let snapshot) = entry.place else { return nil }
        return try snapshot.contents(identity: identity())
    }

    /// Writes a snapshot that ``takeExcess(allBut:planned:)`` took out, and keeps the limit of files. Where
    /// that fails, or all was forgotten meanwhile, there is one less.
    mutating func write(_ entry: Entry, _ contents: SnapshotFile.Computed) {
        guard entry.moment > forgotten, let stored = try? store(entry, contents) else { return }
        let index = entries.firstIndex { $0.moment > entry.moment } ?? entries.endIndex
        entries.insert(stored, at: index)
        while bytes(in: files) > limits.files { entries.remove(at: victim(of: files)) }
    }

    /// Forgets all in memory but the newest.
    mutating func releaseMemory() {
        for index in memory.dropLast().reversed() { entries.remove(at: index) }
    }

    /// Takes over files that ``SnapshotFile`` reads and that stay where they are, oldest first.
    /// Those that it does not read are left out.
    ///
    /// - Parameter archive: has the archives of all of them
    package mutating func add(savedIn files: [URL], archive: ConversationFolder?) {
        for file in files {
            guard let state = try? SnapshotFile.state(of: file, identity: identity()) else {
                continue
            }
            let stored = StoredSnapshot(file, archive)
            count += 1
            entries.append(
                Entry(state: state, moment: count, bytes: stored.byteCount, place: .file(stored)))
        }
    }

    /// The conversation as it was after as many of these messages as possible.
    package mutating func nearest(to chain: TranscriptChain) -> ConversationHead? {
        nearest { $0.chain.count > 0 && chain.starts(with: $0.chain) }
    }

    /// The conversation as it was when it had read as many of these tokens as possible, but not
    /// all.
    ///
    /// - Parameter pinned: positions that its caches must never evict
    package mutating func nearest(
        toTokens tokens: [Int], pinned: Range<Int> = 0 ..< 0
    ) -> ConversationHead? {
        nearest { $0.pinned == pinned && $0.read.count < tokens.count && $0.read.begins(tokens) }
    }

    /// How many of these messages a snapshot has read; nil if none has.
    package func messagesRead(of chain: TranscriptChain) -> Int? {
        entries.map(\.state.chain).filter(chain.starts).map(\.count).max()
    }

    /// Forgets the snapshot that has read exactly these messages, if there is one.
    mutating func remove(at chain: TranscriptChain.Head) {
        entries.removeAll { $0.state.chain == chain }
    }

    package mutating func removeAll() { (entries, forgotten) = ([], count) }

    /// Tokens that each snapshot has read, in the order in which they were made.
    package var tokens: [Int] { entries.map(\.state.read.count) }

    /// Bytes in memory and in files.
    package var bytes: H2OSnapshotLimits {
        H2OSnapshotLimits(memory: bytes(in: memory), files: bytes(in: files))
    }

    private mutating func nearest(_ fits: (ConversationState) -> Bool) -> ConversationHead? {
        while let index = entries.indices.filter({ fits(entries[$0].state) })
            .max(by: { entries[$0].state.read.count < entries[$1].state.read.count })
        {
            if let head = try? head(of: entries[index]) { return head }
            entries.remove(at: index)
        }
        return nil
    }

    private func head(of entry: Entry) throws -> ConversationHead {
        switch entry.place {
        case .memory(let snapshot): try snapshot.head(in: archives)
        case .file(let stored): try stored.head(identity(), in: archives)
        }
    }

    /// The same snapshot in a file.
    private mutating func store(
        _ entry: Entry, _ contents: SnapshotFile.Computed
    ) throws -> Entry {
        guard case .memory(let snapshot) = entry.place else { return entry }
        let folder = try self.folder ?? ConversationFolder(in: root)
        self.folder = folder
        let stored = try StoredSnapshot(
            contents, snapshot.archive, in: folder, name: "\(UUID().uuidString).safetensors")
        return Entry(
            state: entry.state, moment: entry.moment, bytes: stored.byteCount,
            place: .file(stored))
    }

    /// Less than the limit where the device is short of memory. The newest snapshot takes none
    /// yet: it becomes a copy of all rows when the conversation goes on.
    private var memoryLimit: Int {
        guard let room = room(bytes(in: memory.dropLast())) else { return limits.memory }
        return min(limits.memory, max(0, room))
    }

    private func isExcess(_ planned: Int) -> Bool { bytes(in: memory) > memoryLimit + planned }

    private var memory: [Int] {
        entries.indices.filter { if case .memory = entries[$0].place { true } else { false } }
    }

    private var files: [Int] {
        entries.indices.filter { if case .file = entries[$0].place { true } else { false } }
    }

    private func bytes(in indices: some Sequence<Int>) -> Int {
        indices.map { entries[$0].bytes }.reduce(0, +)
    }

    private func victim(of indices: [Int]) -> Int {
        indices.count == 1
            ? indices[0] : indices[SnapshotThinning.victim(of: indices.map { entries[$0].moment })]
    }
}

/// Which of a row of snapshots goes first, so that the newest stay close to each other and the
/// distances grow with the age.
package enum SnapshotThinning {
    /// - Parameter moments: at which the snapshots were made, from 1 on, in order; two or more
    /// - Returns: the index of one, never the newest
    package static func victim(of moments: [Int]) -> Int {
        let newest = moments[moments.count - 1]
        /// The distance that would be left, compared with the age.
        func gap(_ index: Int) -> Double {
            let before = index > 0 ? moments[index - 1] : 0
            return Double(moments[index + 1] - before) / Double(newest - moments[index])
        }
        return moments.indices.dropLast().min { gap($0) < gap($1) } ?? 0
    }
}
