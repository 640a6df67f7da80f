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

    /// No snapshots: a change reads the conversation again from its beginning.
    public static let none = H2OSnapshotLimits(memory: 0, files: 0)
}
