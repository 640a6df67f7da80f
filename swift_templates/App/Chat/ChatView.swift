import H2OChatScreen
import H2OSessions
import SwiftUI

struct ChatView: View {
    @Bindable var chat: H2OChat
    let title: String
    let acknowledgements: [H2OAcknowledgement]
    @State private var showsConversations = false

    var body: some View {
        NavigationStack {
            VStack(spacing: 8) {
                if chat.messages.isEmpty {
                    EmptyConversation()
                } else {
                    MessageList(chat: chat)
                }
                ProblemView(chat: chat)
                EndingView(chat: chat)
                StatusView(chat: chat)
                DraftBar(chat: chat)
            }
            .padding(.horizontal)
            .navigationTitle(title)
            .navigationBarTitleDisplayMode(.inline)
            .toolbar {
                ToolbarItem(placement: .topBarLeading) {
                    Button("Conversations", systemImage: "sidebar.left") {
                        showsConversations = true
                    }
                }
                ToolbarItem(placement: .topBarTrailing) {
                    Menu("More", systemImage: "ellipsis.circle") { menu }
                }
                ToolbarItem(placement: .primaryAction) {
                    Button("New conversation", systemImage: "square.and.pencil") {
                        Task { await chat.beginConversation() }
                    }
                    .disabled(chat.messages.isEmpty)
                }
            }
            .sheet(isPresented: $showsConversations) { ConversationsView(chat: chat) }
        }
    }

    @ViewBuilder private var menu: some View {
        ShareLink(item: chat.transcript) { Label("Share", systemImage: "square.and.arrow.up") }
            .disabled(chat.messages.isEmpty)
        NavigationLink {
            SettingsView(chat: chat, acknowledgements: acknowledgements)
        } label: {
            Label("Settings", systemImage: "gear")
        }
    }
}

private struct EmptyConversation: View {
    var body: some View {
        ContentUnavailableView {
            Label("Ask something", systemImage: "bubble.left.and.text.bubble.right")
        } description: {
            Text("The model runs on this device, and nothing is sent anywhere.")
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
                        message: message, isArriving: isArriving(message),
                        actions: actions(message))
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
        var actions = MessageView.Actions()
        guard chat.state == .ready else { return actions }
        if message.isUser {
            actions.edit = { chat.edit(message.id) }
        } else if message.id == chat.messages.last?.id {
            actions.regenerate = { Task { await chat.regenerate() } }
        }
        return actions
    }
}

/// Shows that a reply is incomplete, with a button to continue it.
private struct EndingView: View {
    let chat: H2OChat

    var body: some View {
        if chat.canContinue {
            HStack {
                if chat.messages.last?.isUser == true {
                    Text("There is no reply.")
                } else {
                    Text("The reply was cut off.")
                }
                Spacer()
                Button("Continue", systemImage: "arrow.right") {
                    Task { await chat.continueReply() }
                }
                .buttonStyle(.bordered)
            }
            .font(.callout)
        }
    }
}

/// Shows why the model is not loaded, or why there is no reply.
private struct ProblemView: View {
    let chat: H2OChat

    var body: some View {
        if let problem = chat.problem {
            HStack {
                Label(problem, systemImage: "exclamationmark.triangle")
                    .frame(maxWidth: .infinity, alignment: .leading)
                if let details = chat.problemDetails, details != problem {
                    ShareLink(item: details) { Text("Details") }
                }
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
        chat: H2OChat { throw CancellationError() }, title: "Model", acknowledgements: [])
}
