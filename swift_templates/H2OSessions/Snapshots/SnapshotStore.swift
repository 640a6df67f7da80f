import Foundation
import H2OKit

/// The bytes that a conversation's snapshots may take. A snapshot is a copy of the caches at the
/// end of a turn. After an edit, the conversation continues from a snapshot and reads only later
/// messages again. A snapshot takes as many bytes as the caches in the plan.
///
/// Snapshots save time and change no reply: without one, the conversation repeats the steps that
/// made the caches of the earlier turn.
public struct H2OSnapshotLimits: Hashable, Sendable {
    /// Bytes of the snapshots in memory.
    public var memory: Int
    /// Bytes of the older snapshots, in files that are deleted with the conversation.
    public var files: Int

    public init(memory: Int = 128 << 20, files: Int = 512 << 20) {
        self.memory = memory
        self.files = files
    }

    /// No snapshots. After a change, and after a turn with thoughts that the chat template drops, the
    /// conversation is read again from its beginning.
    public static let none = H2OSnapshotLimits(memory: 0, files: 0)
}

/// The earlier states of a conversation, and snapshots of them in memory and in files. Memory and
/// files each have a limit in bytes. The newest snapshots are few turns apart, older ones more.
/// Only jobs on the model's executor use it.
package struct SnapshotStore: @unchecked Sendable {
    /// A snapshot that moves from memory to a file. Only jobs on the model's executor use it.
    package struct Excess: @unchecked Sendable {
        fileprivate let moment: Int
        let snapshot: ConversationSnapshot
    }

    private struct Entry {
        let state: ConversationState
        /// The number of the state in the order of creation.
        let moment: Int
        var snapshot = Place.none

        var bytes: Int {
            switch snapshot {
            case .none: 0
            case .memory(let snapshot): snapshot.byteCount
            case .file(let stored): stored.byteCount
            }
        }
    }

    private enum Place {
        case none
        case memory(ConversationSnapshot)
        case file(StoredSnapshot)
    }

    /// The most states.
    private static let most = 4096

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

    /// Notes a state to which the conversation may return. It replaces an earlier state with the
    /// same messages. A snapshot of the same steps stays.
    package mutating func add(_ state: ConversationState) {
        let same = entries.last { $0.state.isAlike(state) && $0.state.steps == state.steps }
        add(state, same?.snapshot ?? .none)
    }

    /// Adds a snapshot of a state. If the limit in memory is exceeded and no snapshots go to files,
    /// releases some; otherwise ``takeExcess(allBut:planned:)`` returns the snapshots to move.
    ///
    /// - Parameter planned: bytes of memory that the plan contains for this snapshot, in addition
    ///   to the limit
    package mutating func add(_ snapshot: ConversationSnapshot, planned: Int = 0) {
        guard limits != .none else { return add(snapshot.state) }
        add(snapshot.state, .memory(snapshot))
        guard limits.files == 0 else { return }
        while isExcess(planned) { entries[victim(of: memory)].snapshot = .none }
    }

    private mutating func add(_ state: ConversationState, _ snapshot: Place) {
        entries.removeAll { $0.state.isAlike(state) }
        count += 1
        entries.append(Entry(state: state, moment: count, snapshot: snapshot))
        entries.removeFirst(max(0, entries.count - Self.most))
    }

    /// Removes and returns the oldest snapshot in memory that should move to a file. Compute its
    /// contents in a step of the background guard, and ``write(_:_:)`` them outside of it.
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
            let index = memory.first(where: { entries[$0].state.steps.count != tokens }),
            case .memory(let snapshot) = entries[index].snapshot
        else { return nil }
        entries[index].snapshot = .none
        return Excess(moment: entries[index].moment, snapshot: snapshot)
    }

    /// Writes a snapshot that ``takeExcess(allBut:planned:)`` returned, and deletes older ones to
    /// keep the limit in files. If writing fails, or if its state was forgotten meanwhile, the
    /// snapshot is lost.
    mutating func write(_ excess: Excess, _ contents: SnapshotFile.Computed) {
        guard let index = entries.firstIndex(where: { $0.moment == excess.moment }),
            let stored = try? store(contents, archive: excess.snapshot.archive)
        else { return }
        entries[index].snapshot = .file(stored)
        while bytes(in: files) > limits.files { entries[victim(of: files)].snapshot = .none }
    }

    /// Deletes all snapshots in memory except the newest.
    mutating func releaseMemory() {
        for index in memory.dropLast() { entries[index].snapshot = .none }
    }

    /// Deletes all snapshots. The states stay.
    mutating func release() {
        for index in entries.indices { entries[index].snapshot = .none }
    }

    /// Deletes the snapshot of a state.
    mutating func release(at chain: TranscriptChain.Head) {
        for index in entries.indices where entries[index].state.chain == chain {
            entries[index].snapshot = .none
        }
    }

    /// Adds files that ``SnapshotFile`` reads, the oldest first. The files are not moved. Files that
    /// cannot be read are ignored.
    ///
    /// - Parameter archive: the folder with the archives of all these files
    package mutating func add(savedIn files: [URL], archive: ConversationFolder?) {
        for file in files {
            let saved = try? SnapshotFile(file, identity: identity(), checksEveryByte: false)
            guard let saved, saved.problem == nil else { continue }
            add(saved.state, .file(StoredSnapshot(file, archive)))
        }
    }

    /// The state that has read the most of these messages.
    package func state(before chain: TranscriptChain) -> ConversationState? {
        longest { $0.chain.count > 0 && chain.starts(with: $0.chain) }
    }

    /// The state with messages that has read the longest beginning of these tokens, but not all.
    ///
    /// - Parameter pinned: positions that its caches never evict
    package func state(
        beforeTokens tokens: [Int], pinned: Range<Int> = 0 ..< 0
    ) -> ConversationState? {
        longest {
            $0.chain.count > 0 && $0.pinned == pinned && $0.steps.count < tokens.count
                && $0.steps.begins(tokens)
        }
    }

    /// The points of all states with messages that these steps contain.
    func points(in state: ConversationState) -> [ConversationPoint] {
        entries.map(\.state).filter {
            $0.chain.count > 0 && $0.pinned == state.pinned && state.steps.starts(with: $0.steps)
        }.map(\.point)
    }

    /// The snapshot that contains the most of these steps and no others. Its caches are copies.
    ///
    /// - Parameter pinned: positions that its caches never evict
    package mutating func nearest(
        within steps: CacheSteps, pinned: Range<Int> = 0 ..< 0
    ) -> ConversationHead? {
        let isWithin = { (entry: Entry) in
            if case .none = entry.snapshot { return false }
            return entry.state.pinned == pinned && steps.starts(with: entry.state.steps)
        }
        while let index = entries.indices.filter({ isWithin(entries[$0]) })
            .max(by: { entries[$0].state.steps.count < entries[$1].state.steps.count })
        {
            if let head = try? head(of: entries[index]) { return head }
            entries[index].snapshot = .none
        }
        return nil
    }

    /// Whether there is a snapshot of exactly these steps.
    func hasSnapshot(of steps: CacheSteps) -> Bool {
        (memory + files).contains { entries[$0].state.steps == steps }
    }

    /// The largest number of these messages that a state has read; nil if none has read any.
    package func messagesRead(of chain: TranscriptChain) -> Int? {
        entries.map(\.state.chain).filter { $0.count > 0 && chain.starts(with: $0) }
            .map(\.count).max()
    }

    package mutating func removeAll() { entries = [] }

    /// The number of tokens that each snapshot has read, in the order of creation.
    package var tokens: [Int] { (memory + files).sorted().map { entries[$0].state.steps.count } }

    /// Bytes of the snapshots in memory and in files.
    package var bytes: H2OSnapshotLimits {
        H2OSnapshotLimits(memory: bytes(in: memory), files: bytes(in: files))
    }

    private func longest(_ fits: (ConversationState) -> Bool) -> ConversationState? {
        var longest: ConversationState?
        for entry in entries where fits(entry.state) {
            if entry.state.steps.count >= longest?.steps.count ?? 0 { longest = entry.state }
        }
        return longest
    }

    private func head(of entry: Entry) throws -> ConversationHead? {
        switch entry.snapshot {
        case .none: nil
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
        entries.indices.filter { if case .memory = entries[$0].snapshot { true } else { false } }
    }

    private var files: [Int] {
        entries.indices.filter { if case .file = entries[$0].snapshot { true } else { false } }
    }

    private func bytes(in indices: some Sequence<Int>) -> Int {
        indices.map { entries[$0].bytes }.reduce(0, +)
    }

    private func victim(of indices: [Int]) -> Int {
        indices[SnapshotThinning.victim(of: indices.map { entries[$0].moment })]
    }
}

extension ConversationState {
    /// Whether a state replaces this one: it has the same messages or, before the first message, the
    /// same number of tokens.
    fileprivate func isAlike(_ other: ConversationState) -> Bool {
        chain == other.chain && (chain.count > 0 || steps.count == other.steps.count)
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
