import H2OSessions
import SwiftUI

/// Speed, memory, and which positions the cache keeps.
struct StatusView: View {
    let chat: H2OChat

    var body: some View {
        VStack(alignment: .leading, spacing: 4) {
            switch chat.state {
            case .loading:
                ProgressView("Loading the model")
            case .ready, .replying:
                speed
            case .failed:
                EmptyView()
            }
            if let memory = chat.memory { MemoryBar(memory: memory) }
            if let kept = chat.kept, !kept.shares.isEmpty { KeptStrip(kept: kept) }
        }
        .font(.caption)
        .monospacedDigit()
    }

    private var speed: some View {
        let usage = chat.usage
        let speed = usage.tokensPerSecond.formatted(.number.precision(.fractionLength(1)))
        return VStack(alignment: .leading) {
            Text("\(speed) tokens/s, \(usage.readTokens) read, \(usage.generatedTokens) written")
            if let recalled = usage.recalled { Text("\(recalled.rows) rows recalled") }
        }
    }
}

/// MLX's memory as a share of what this process may use: MLX's memory and the free memory.
private struct MemoryBar: View {
    let memory: H2OMemoryReading

    var body: some View {
        if let free = memory.free {
            ProgressView(value: Double(memory.active), total: Double(memory.active + free)) {
                Text("\(bytes(memory.active)) in use, \(bytes(free)) left")
            }
        } else {
            Text("\(bytes(memory.active)) in use")
        }
    }

    private func bytes(_ count: Int) -> String {
        Int64(count).formatted(.byteCount(style: .memory))
    }
}

#Preview {
    StatusView(chat: H2OChat { throw CancellationError() })
}
