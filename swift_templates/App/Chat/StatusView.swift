import H2OChatScreen
import H2OSessions
import SwiftUI

/// Shows that the model is loading, or the memory in use and how much the model remembers.
struct StatusView: View {
    let chat: H2OChat

    var body: some View {
        VStack(alignment: .leading, spacing: 4) {
            switch chat.state {
            case .loading:
                if let share = chat.fetchedShare {
                    ProgressView("Fetching the model", value: share)
                } else {
                    ProgressView("Loading the model")
                }
            case .ready, .replying:
                if let memory = chat.memory, memory.tokens > 0 { remembered(memory) }
            case .failed:
                EmptyView()
            }
        }
        .font(.caption)
        .monospacedDigit()
    }

    private func remembered(_ memory: H2OMemoryReading) -> some View {
        let bytes = Int64(memory.active).formatted(.byteCount(style: .memory))
        return Text("\(bytes) in use, \(memory.remembered) of \(memory.tokens) tokens remembered")
            .foregroundStyle(.secondary)
    }
}

#Preview {
    StatusView(chat: H2OChat { throw CancellationError() })
}
