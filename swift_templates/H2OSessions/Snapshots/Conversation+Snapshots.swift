import Foundation
import H2OKit
import MLX

extension Conversation {
    /// What it goes on from; nil before the first reply.
    var head: ConversationHead? {
        state.map { ConversationHead(state: $0, caches: caches, archive: archive) }
    }

    func goOn(from head: ConversationHead) {
        // The caches first: they have files of the archive's folder open.
        (caches, archive, state) = (head.caches, head.archive, head.state)
    }

    /// Keeps the conversation as it is now, so that it can return here. Where that fails there is
    /// a snapshot less, and more is read again after a change.
    func keepSnapshot() async {
        // The end of a turn does not wait until the app is in the foreground again.
        guard let head, !loaded.platform.background.isClosed else { return }
        try? await loaded.platform.background.withGPU {
            snapshots.add(try ConversationSnapshot(of: head))
        }
    }

    /// Another conversation that goes on from the same transcript, by itself.
    ///
    /// - Throws: `CancellationError`, or `H2OCacheError.archive` where files of the archive
    ///   are not as they were written
    package func fork() async throws -> Conversation {
        guard let head else { return Conversation(model: model, head: nil, snapshots: snapshots) }
        let other = try await loaded.platform.background.withGPU {
            try ConversationSnapshot(of: head).head(in: loaded.platform.archives)
        }
        return Conversation(model: model, head: other, snapshots: snapshots)
    }
}
