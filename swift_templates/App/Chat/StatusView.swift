import H2OChatScreen
import H2OSessions
import SwiftUI

/// Shows the current activity, the speed of the last reply, and what the conversation takes.
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
                if chat.usage.generatedTokens > 0 { speed }
                if let memory = chat.memory, memory.tokens > 0 { remembered(memory) }
            case .failed:
                EmptyView()
            }
        }
        .font(.caption)
        .monospacedDigit()
    }

    private var speed: some View {
        let usage = chat.usage
        let speed = usage.tokensPerSecond.formatted(.number.precision(.fractionLength(1)))
        return Text(
            "\(speed) tokens/s, \(usage.readTokens) read, \(usage.generatedTokens) written")
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
