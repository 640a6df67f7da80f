// written once by h2o-pack, yours to change
import H2OChatScreen
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

    @Environment(\.scenePhase) private var phase

    var body: some Scene {
        WindowGroup {
            chatView
        }
    }

    private var chatView: some View {
        ChatView(
            chat: chat, title: BundledModel.id,
            acknowledgements: BundledModel.acknowledgements
        )
        .task { await chat.load() }
        .onChange(of: phase) {
            if phase == .background { Task { await chat.save() } }
        }
    }
}
