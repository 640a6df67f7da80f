import H2OChatScreen
import H2OSessions
import SwiftUI

/// Lists the saved conversations.
struct ConversationsView: View {
    let chat: H2OChat
    @Environment(\.dismiss) private var dismiss

    var body: some View {
        NavigationStack {
            List {
                ForEach(chat.conversations) { conversation in
                    Button {
                        dismiss()
                        Task { await chat.open(conversation.id) }
                    } label: {
                        VStack(alignment: .leading) {
                            Text(verbatim: conversation.title).lineLimit(1)
                            Text(conversation.date, style: .relative)
                                .font(.caption)
                                .foregroundStyle(.secondary)
                        }
                    }
                    .swipeActions {
                        Button("Delete", role: .destructive) {
                            Task { await chat.delete(conversation.id) }
                        }
                    }
                }
            }
            .overlay {
                if chat.conversations.isEmpty { Text("There are no conversations yet.") }
            }
            .navigationTitle("Conversations")
            .navigationBarTitleDisplayMode(.inline)
            .toolbar {
                ToolbarItem(placement: .confirmationAction) {
                    Button("Done") { dismiss() }
                }
            }
        }
    }
}

/// Settings of replies, and the acknowledgements.
struct SettingsView: View {
    @Bindable var chat: H2OChat
    let acknowledgements: [H2OAcknowledgement]

    var body: some View {
        Form {
            Section {
                if chat.canThink { Toggle("Think first", isOn: $chat.thinks) }
                Picker("Length of a reply", selection: $chat.maxTokens) {
                    Text("No limit").tag(Int?.none)
                    ForEach([128, 512, 2048], id: \.self) { count in
                        Text("\(count) tokens at most").tag(Int?.some(count))
                    }
                }
            }
            Section {
                NavigationLink {
                    AcknowledgementsView(works: acknowledgements)
                } label: {
                    Text("Acknowledgements")
                }
                if MeasureView.isShown, let model = chat.model {
                    NavigationLink {
                        MeasureView(model: model)
                    } label: {
                        Text("Measurements")
                    }
                }
            }
        }
        .navigationTitle("Settings")
        .navigationBarTitleDisplayMode(.inline)
    }
}

#Preview {
    ConversationsView(chat: H2OChat { throw CancellationError() })
}
