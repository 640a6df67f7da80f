import Foundation
import H2OKit

/// The bytes that a conversation's snapshots may take. A snapshot is a copy of the caches at the
/// end of a turn. After an edit, the conversation continues from a snapshot and reads only later
/// messages again. A snapshot takes as many bytes as the caches in the plan.
public struct H2OSnapshotLimits: Hashable, Sendable {
    /// Bytes of the snapshots in memory.
    public var memory: Int
    /// Bytes of the older snapshots, in files that are deleted with the conversation.
    public var files: Int

    public init(memory: Int = 128 << 20, files: Int = 512 << 20) {
        self.memory = memory
        self.files = files
    }

    /// No snapshots. After a change, the conversation is read again from its beginning, and thoughts
    /// stay in the caches.
    public static let none = H2OSnapshotLimits(memory: 0, files: 0)
}

/// A conversation's snapshots in memory and in files. Memory and files each have a limit in bytes.
/// The newest snapshots are few turns apart, older ones more. Only jobs on the model's executor use
/// it.
package struct SnapshotStore: @unchecked Sendable {
    /// A snapshot that moves from memory to a file. Only jobs on the model's executor use it.
    package struct Excess: @unchecked Sendable {
        fileprivate let moment: Int
        fileprivate let snapshot: ConversationSnapshot
    }

    private struct Entry {
        let state: ConversationState
        /// The number of the snapshot in the order of creation.
        let moment: Int
        let bytes: Int
        let place: Place
    }

    private enum Place {
        case memory(ConversationSnapshot)
        case file(StoredSnapshot)
    }

    private let limits: H2OSnapshotLimits
    private let identity: () -> ConversationIdentity
    private let archives: URL
    private let root: URL
    private let room: (Int) -> Int?
    /// Created for the first file.
    private var folder: ConversationFolder?
    /// In the order of creation.
    private var entries = [Entry]()
    private var count = 0
    /// How often all snapshots were deleted together.
    private var forgotten = 0

    /// - Parameters:
    ///   - limits: bytes in memory and in files
    ///   - identity: everything on which the conversation's caches depend
    ///   - archives: the folder in which archives in files continue
    ///   - root: contains a folder for each conversation's files
    ///   - room: receives the bytes that the snapshots take in memory now, and returns the bytes
    ///     that they may take; nil if the system does not report it
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

    /// Adds a snapshot, which replaces a snapshot of the same messages. If the limit in memory is
    /// exceeded and no snapshots go to files, deletes some; otherwise
    /// ``takeExcess(allBut:planned:)`` returns the snapshots to move.
    ///
    /// - Parameter planned: bytes of memory that the plan contains for this snapshot, in addition
    ///   to the limit
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

    /// Removes and returns the oldest snapshot in memory that should move to a file. Compute its
    /// ``contents(of:)`` in a step of the background guard, and ``write(_:_:)`` them outside of it.
    ///
    /// - Parameters:
    ///   - tokens: the number of tokens that the conversation has read, to move all snapshots
    ///     except the one that shares the conversation's buffers; nil to move only those above the
    ///     limit in memory
    ///   - planned: bytes of memory that the plan contains for the newest snapshot, in addition to
    ///     the limit
    /// - Returns: nil if no snapshot should move
    package mutating func takeExcess(allBut tokens: Int? = nil, planned: Int = 0) -> Excess? {
        guard limits.files > 0, tokens != nil || isExcess(planned),
            let index = memory.first(where: { entries[$0].state.read.count != tokens }),
            case .memory(let snapshot) = entries[index].place
        else { return nil }
        return Excess(moment: entries.remove(at: index).moment, snapshot: snapshot)
    }

    /// Computes the content of the file of a snapshot.
    ///
    /// - Throws: `H2OCacheError.notSavable`
    func contents(of excess: Excess) throws -> SnapshotFile.Computed {
        try excess.snapshot.contents(identity: identity())
    }

    /// Writes a snapshot that ``takeExcess(allBut:planned:)`` returned, and deletes older ones to
    /// keep the limit in files. If writing fails, or if all snapshots were deleted meanwhile, the
    /// snapshot is lost.
    mutating func write(_ excess: Excess, _ contents: SnapshotFile.Computed) {
        guard excess.moment > forgotten,
            let stored = try? store(contents, archive: excess.snapshot.archive)
        else { return }
        let index = entries.firstIndex { $0.moment > excess.moment } ?? entries.endIndex
        entries.insert(
            Entry(
                state: excess.snapshot.state, moment: excess.moment, bytes: stored.byteCount,
                place: .file(stored)),
            at: index)
        while bytes(in: files) > limits.files { entries.remove(at: victim(of: files)) }
    }

    /// Deletes all snapshots in memory except the newest.
    mutating func releaseMemory() {
        for index in memory.dropLast().reversed() { entries.remove(at: index) }
    }

    /// Adds files that ``SnapshotFile`` reads, the oldest first. The files are not moved. Files that
    /// cannot be read are ignored.
    ///
    /// - Parameter archive: the folder with the archives of all these files
    package mutating func add(savedIn files: [URL], archive: ConversationFolder?) {
        for file in files {
            let saved = try? SnapshotFile(file, identity: identity(), checksEveryByte: false)
            guard let state = saved?.state else { continue }
            let stored = StoredSnapshot(file, archive)
            count += 1
            entries.append(
                Entry(state: state, moment: count, bytes: stored.byteCount, place: .file(stored)))
        }
    }

    /// The conversation from the snapshot that has read the most of these messages.
    package mutating func nearest(to chain: TranscriptChain) -> ConversationHead? {
        nearest { $0.chain.count > 0 && chain.starts(with: $0.chain) }
    }

    /// The conversation whose snapshot has read the longest beginning of these tokens, but not all.
    ///
    /// - Parameter pinned: positions that its caches must never evict
    package mutating func nearest(
        toTokens tokens: [Int], pinned: Range<Int> = 0 ..< 0
    ) -> ConversationHead? {
        nearest { $0.pinned == pinned && $0.read.count < tokens.count && $0.read.begins(tokens) }
    }

    /// The largest number of these messages that a snapshot has read; nil if no snapshot has read
    /// any.
    package func messagesRead(of chain: TranscriptChain) -> Int? {
        entries.map(\.state.chain).filter(chain.starts).map(\.count).max()
    }

    /// Deletes the snapshot that has read exactly these messages, if there is one.
    mutating func remove(at chain: TranscriptChain.Head) {
        entries.removeAll { $0.state.chain == chain }
    }

    package mutating func removeAll() { (entries, forgotten) = ([], count) }

    /// The number of tokens that each snapshot has read, in the order of creation.
    package var tokens: [Int] { entries.map(\.state.read.count) }

    /// Bytes of the snapshots in memory and in files.
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

    /// Writes a snapshot to a new file.
    private mutating func store(
        _ contents: SnapshotFile.Computed, archive: ConversationFolder?
    ) throws -> StoredSnapshot {
        let folder = try self.folder ?? ConversationFolder(in: root)
        self.folder = folder
        let name = "\(UUID().uuidString).safetensors"
        let file = folder.url.appending(path: name, directoryHint: .notDirectory)
        try contents.write(to: file)
        return StoredSnapshot(file, archive, ownedIn: folder)
    }

    /// The bytes that snapshots may take in memory now: less than the limit if the device is short of
    /// memory. The newest snapshot takes no memory yet, because rows are copied only when the
    /// conversation continues.
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
        indices[SnapshotThinning.victim(of: indices.map { entries[$0].moment })]
    }
}

/// Chooses the snapshot that is deleted first. The distances between the remaining snapshots grow
/// with their age.
package enum SnapshotThinning {
    /// - Parameter moments: the numbers of the snapshots in the order of creation, from 1 on
    /// - Returns: the index of the snapshot to delete, which is the newest only if it is alone
    package static func victim(of moments: [Int]) -> Int {
        let newest = moments[moments.count - 1]
        /// The distance between the neighbors of a snapshot, divided by its age.
        func gap(_ index: Int) -> Double {
            let before = index > 0 ? moments[index - 1] : 0
            return Double(moments[index + 1] - before) / Double(newest - moments[index])
        }
        return moments.indices.dropLast().min { gap($0) < gap($1) } ?? 0
    }
}
