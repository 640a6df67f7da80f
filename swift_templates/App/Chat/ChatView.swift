import SwiftUI

struct ChatView: View {
    @Bindable var chat: Chat
    let title: String

    var body: some View {
        NavigationStack {
            VStack(spacing: 8) {
                MessageList(messages: chat.messages)
                StatusView(chat: chat)
                DraftBar(chat: chat)
            }
            .padding(.horizontal)
            .navigationTitle(title)
            .navigationBarTitleDisplayMode(.inline)
            .toolbar {
                Button("New", systemImage: "square.and.pencil") {
                    Task { await chat.clear() }
                }
                .disabled(chat.state == .loading)
            }
        }
    }
}

private struct MessageList: View {
    let messages: [Chat.Message]

    var body: some View {
        ScrollView {
            LazyVStack(spacing: 12) {
                ForEach(messages) { message in
                    Text(message.text)
                        .textSelection(.enabled)
                        .padding(10)
                        .background(
                            message.isUser
                                ? Color.accentColor.opacity(0.2) : Color.gray.opacity(0.15),
                            in: .rect(cornerRadius: 12)
                        )
                        .frame(
                            maxWidth: .infinity, alignment: message.isUser ? .trailing : .leading)
                }
            }
        }
        .defaultScrollAnchor(.bottom)
    }
}

private struct DraftBar: View {
    @Bindable var chat: Chat

    var body: some View {
        HStack {
            TextField("Message", text: $chat.draft, axis: .vertical)
                .textFieldStyle(.roundedBorder)
                .lineLimit(1 ... 5)
            if chat.state == .replying {
                Button("Stop", systemImage: "stop.fill") { Task { await chat.stop() } }
            } else {
                Button("Send", systemImage: "arrow.up") { Task { await chat.send() } }
                    .disabled(chat.state != .ready || chat.draft.isEmpty)
            }
        }
        .labelStyle(.iconOnly)
        .padding(.bottom, 8)
    }
}
