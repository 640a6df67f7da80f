import H2OSessions
import SwiftUI

/// Speed, memory, and which positions the cache keeps.
struct StatusView: View {
    let chat: Chat

    var body: some View {
        VStack(alignment: .leading, spacing: 4) {
            switch chat.state {
            case .loading:
                ProgressView("Loading the model")
            case .failed(let reason):
                Label(reason, systemImage: "exclamationmark.triangle")
            case .ready, .replying:
                speed
            }
            if let memory = chat.memory { MemoryBar(memory: memory) }
            if let kept = chat.kept, !kept.shares.isEmpty { KeptStrip(kept: kept) }
        }
        .font(.caption)
        .monospacedDigit()
    }

    private var speed: some View {
        let usage = chat.usage
        let recalled = usage.recalled.map { ", \($0.rows) rows recalled" } ?? ""
        return Text(
            """
            \(usage.tokensPerSecond, format: .number.precision(.fractionLength(1))) tokens/s, \
            \(usage.readTokens) read, \(usage.generatedTokens) written\(recalled)
            """)
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
