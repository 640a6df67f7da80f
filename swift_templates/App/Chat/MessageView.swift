import H2OChatScreen
import H2OSessions
import SwiftUI

/// Shows a message: its thoughts, and its text. The thoughts collapse when the text begins.
struct MessageView: View {
    /// Actions of the message's menu; nil for an action that is not possible now.
    struct Actions {
        var edit: (@MainActor () -> Void)?
        var regenerate: (@MainActor () -> Void)?
    }

    let message: H2OChat.Message
    let isArriving: Bool
    let actions: Actions
    @State private var showsThoughts = false
    @State private var isOpen = false

    var body: some View {
        VStack(alignment: .leading, spacing: 8) {
            if !message.thoughts.isEmpty { thoughts }
            text
            if isArriving && message.text.isEmpty {
                if message.thoughts.isEmpty {
                    ProgressView().accessibilityLabel("Waiting for the reply")
                } else {
                    ProgressView().accessibilityLabel("Thinking")
                }
            }
        }
        .textSelection(.enabled)
        .padding(10)
        .background(color, in: .rect(cornerRadius: 12))
        .contextMenu { menu }
        .frame(maxWidth: .infinity, alignment: message.isUser ? .trailing : .leading)
        // With a container, VoiceOver reaches each part, including the thoughts.
        .accessibilityElement(children: .contain)
        .accessibilityLabel(message.isUser ? "You: \(summary)" : "Reply: \(summary)")
        .accessibilityActions { menu }
    }

    /// Messages of the user with more characters are collapsed.
    private static let longest = 2000

    private var summary: String { String(message.text.prefix(200)) }

    @ViewBuilder private var text: some View {
        let isLong = message.text.count > Self.longest
        if message.isUser {
            Text(verbatim: message.text).lineLimit(isLong && !isOpen ? 8 : nil)
        } else {
            MarkdownText(text: message.text)
        }
        if isLong && message.isUser {
            Button {
                isOpen.toggle()
            } label: {
                if isOpen { Text("Show less") } else { Text("Show all") }
            }
            .font(.callout)
        }
    }

    private var color: Color {
        message.isUser ? .accentColor.opacity(0.2) : .gray.opacity(0.15)
    }

    private var thoughts: some View {
        let isThinking = isArriving && message.text.isEmpty
        return DisclosureGroup(
            "Thoughts",
            isExpanded: Binding {
                showsThoughts || isThinking
            } set: {
                showsThoughts = $0
            }
        ) {
            Text(verbatim: message.thoughts)
                .foregroundStyle(.secondary)
                .frame(maxWidth: .infinity, alignment: .leading)
        }
        .font(.callout)
    }

    @ViewBuilder private var menu: some View {
        Button("Copy", systemImage: "doc.on.doc") { UIPasteboard.general.string = message.text }
        ShareLink(item: message.text) { Label("Share", systemImage: "square.and.arrow.up") }
        if let edit = actions.edit {
            Button("Edit", systemImage: "pencil", action: edit)
        }
        if let regenerate = actions.regenerate {
            Button("Regenerate", systemImage: "arrow.clockwise", action: regenerate)
        }
    }
}

#Preview {
    MessageView(
        message: H2OChat.Message(
            id: 1, isUser: false, text: "A token with *much* attention.", thoughts: "Short."),
        isArriving: false, actions: MessageView.Actions(regenerate: {}))
}
