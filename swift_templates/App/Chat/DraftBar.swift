import H2OChatScreen
import SwiftUI

/// The text field for the next message, and its buttons.
struct DraftBar: View {
    @Bindable var chat: H2OChat

    var body: some View {
        VStack(alignment: .leading, spacing: 4) {
            if chat.editing != nil { editing }
            HStack {
                TextField("Message", text: $chat.draft, axis: .vertical)
                    .textFieldStyle(.roundedBorder)
                    .lineLimit(1 ... 5)
                if chat.state == .replying {
                    Button("Stop", systemImage: "stop.fill") { Task { await chat.stop() } }
                } else {
                    Button("Send", systemImage: "arrow.up") { Task { await chat.send() } }
                        .disabled(!chat.canSend)
                }
            }
        }
        .labelStyle(.iconOnly)
        .padding(.bottom, 8)
    }

    private var editing: some View {
        HStack {
            Text("Replaces this message and all later messages")
            Spacer()
            Button("Cancel editing", systemImage: "xmark.circle") { chat.cancelEditing() }
        }
        .font(.caption)
    }
}

#Preview {
    DraftBar(chat: H2OChat { throw CancellationError() })
}
