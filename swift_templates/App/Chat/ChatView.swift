import H2OSessions
import SwiftUI

struct ChatView: View {
    @Bindable var chat: H2OChat
    let title: String
    let acknowledgements: [H2OAcknowledgement]
    let proofSettings: [H2OProofSetting]
    @State private var isClearing = false

    var body: some View {
        NavigationStack {
            VStack(spacing: 8) {
                MessageList(chat: chat)
                ProblemView(chat: chat)
                StatusView(chat: chat)
                DraftBar(chat: chat)
            }
            .padding(.horizontal)
            .navigationTitle(title)
            .navigationBarTitleDisplayMode(.inline)
            .toolbar {
                ToolbarItem(placement: .topBarLeading) {
                    NavigationLink {
                        AcknowledgementsView(works: acknowledgements)
                    } label: {
                        Label("Acknowledgements", systemImage: "info.circle")
                    }
                }
                ToolbarItem(placement: .topBarLeading) {
                    NavigationLink {
                        ProofView(chat: chat, settings: proofSettings)
                    } label: {
                        Label("Prove it", systemImage: "checkmark.seal")
                    }
                }
                ToolbarItem(placement: .primaryAction) {
                    Button("New conversation", systemImage: "square.and.pencil") {
                        isClearing = true
                    }
                    .disabled(chat.messages.isEmpty)
                }
            }
            .confirmationDialog("Delete this conversation?", isPresented: $isClearing) {
                Button("Delete", role: .destructive) { Task { await chat.clear() } }
            }
        }
    }
}

private struct MessageList: View {
    let chat: H2OChat

    var body: some View {
        ScrollView {
            LazyVStack(spacing: 12) {
                ForEach(chat.messages) { message in
                    MessageView(
                        message: message, isArriving: isArriving(message), actions: actions(message)
                    )
                }
            }
        }
        .defaultScrollAnchor(.bottom)
        .scrollDismissesKeyboard(.interactively)
    }

    private func isArriving(_ message: H2OChat.Message) -> Bool {
        chat.state == .replying && message.id == chat.messages.last?.id
    }

    private func actions(_ message: H2OChat.Message) -> MessageView.Actions {
        guard chat.state == .ready else { return MessageView.Actions() }
        let isLast = message.id == chat.messages.last?.id
        return MessageView.Actions(
            edit: message.isUser ? { chat.edit(message.id) } : nil,
            regenerate: isLast && !message.isUser ? { Task { await chat.regenerate() } } : nil)
    }
}

/// Why the model is not loaded, or why there is no reply.
private struct ProblemView: View {
    let chat: H2OChat

    var body: some View {
        if let problem = chat.problem {
            HStack {
                Label(problem, systemImage: "exclamationmark.triangle")
                    .frame(maxWidth: .infinity, alignment: .leading)
                if chat.state == .failed {
                    Button("Try again") { Task { await chat.load() } }
                        .buttonStyle(.bordered)
                }
            }
            .font(.callout)
            .padding(10)
            .background(.red.opacity(0.12), in: .rect(cornerRadius: 12))
        }
    }
}

#Preview {
    ChatView(
        chat: H2OChat { throw CancellationError() }, title: "Model", acknowledgements: [],
        proofSettings: [])
}
