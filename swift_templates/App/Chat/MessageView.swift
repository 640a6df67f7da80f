import H2OSessions
import SwiftUI

/// A message: thoughts folded, then the text.
struct MessageView: View {
    /// What its menu offers; nil for what cannot be done now.
    struct Actions {
        var edit: (() -> Void)?
        var regenerate: (() -> Void)?
    }

    let message: H2OChat.Message
    let isArriving: Bool
    let actions: Actions

    var body: some View {
        VStack(alignment: .leading, spacing: 8) {
            if !message.thoughts.isEmpty { thoughts }
            if message.isUser {
                Text(message.text)
            } else {
                MarkdownText(text: message.text)
            }
            if isArriving && message.text.isEmpty && message.thoughts.isEmpty {
                ProgressView().accessibilityLabel("Waiting for the reply")
            }
        }
        .textSelection(.enabled)
        .padding(10)
        .background(color, in: .rect(cornerRadius: 12))
        .contextMenu { menu }
        .frame(maxWidth: .infinity, alignment: message.isUser ? .trailing : .leading)
        .accessibilityElement(children: .combine)
        .accessibilityLabel(message.isUser ? "You: \(message.text)" : "Reply: \(message.text)")
        .accessibilityActions { menu }
    }

    private var color: Color {
        message.isUser ? .accentColor.opacity(0.2) : .gray.opacity(0.15)
    }

    private var thoughts: some View {
        DisclosureGroup("Thoughts") {
            Text(message.thoughts)
                .foregroundStyle(.secondary)
                .frame(maxWidth: .infinity, alignment: .leading)
        }
        .font(.callout)
    }

    @ViewBuilder private var menu: some View {
        Button("Copy", systemImage: "doc.on.doc") { UIPasteboard.general.string = message.text }
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
