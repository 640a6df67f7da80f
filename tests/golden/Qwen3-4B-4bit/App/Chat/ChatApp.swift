// written once by h2o-pack, yours to change
import SwiftUI
import Qwen3_4B_4bitModel

@main
struct ChatApp: App {
    /// What the model is told first; its tokens are never evicted.
    private static let instructions =
        BundledModel.systemPrompt ?? "You are a helpful assistant. Answer briefly."

    @State private var chat = Chat {
        try await BundledModel.load().makeSession(instructions: instructions)
    }

    var body: some Scene {
        WindowGroup {
            ChatView(chat: chat, title: BundledModel.id)
                .task { await chat.load() }
        }
    }
}
