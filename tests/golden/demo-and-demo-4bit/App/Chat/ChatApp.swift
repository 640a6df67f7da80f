// written once by h2o-pack, yours to change
import H2OSessions
import SwiftUI
import DemoModel

@main
struct ChatApp: App {
    @State private var chat = H2OChat(
        instructions: BundledModel.systemPrompt ?? "You are a helpful assistant. Answer briefly.",
        folder: .applicationSupportDirectory.appending(path: "chat", directoryHint: .isDirectory)
    ) {
        try await BundledModel.load()
    }

    var body: some Scene {
        WindowGroup {
            ChatView(
                chat: chat, title: "demo",
                acknowledgements: BundledModel.acknowledgements,
                proofSettings: BundledModel.proofSettings
            )
                .task { await chat.load() }
        }
    }
}
