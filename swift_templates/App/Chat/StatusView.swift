import Charts
import H2OChatScreen
import H2OSessions
import SwiftUI

/// Shows the current activity, speed, memory, and the positions that the caches keep.
struct StatusView: View {
    let chat: H2OChat
    @State private var showsMemory = true

    var body: some View {
        VStack(alignment: .leading, spacing: 4) {
            switch chat.state {
            case .loading:
                if let share = chat.fetchedShare {
                    ProgressView("Fetching the model", value: share)
                } else {
                    ProgressView("Loading the model")
                }
            case .reading:
                ProgressView("Reading", value: chat.readShare ?? 0)
            case .ready, .replying:
                if chat.usage.generatedTokens > 0 { speed }
            case .failed:
                EmptyView()
            }
            if !chat.memory.isEmpty {
                DisclosureGroup("Memory", isExpanded: $showsMemory) {
                    MemoryChart(readings: chat.memory)
                    if let kept = chat.kept, kept.count > 0 { KeptStrip(kept: kept) }
                }
            }
        }
        .font(.caption)
        .monospacedDigit()
    }

    private var speed: some View {
        let usage = chat.usage
        let speed = usage.tokensPerSecond.formatted(.number.precision(.fractionLength(1)))
        return VStack(alignment: .leading) {
            Text("\(speed) tokens/s, \(usage.readTokens) read, \(usage.generatedTokens) written")
            if let rows = usage.recalledRows { Text("\(rows) rows recalled") }
        }
    }
}

/// Plots MLX's memory over the conversation. The dashed line is the memory that caches would need
/// if they kept all tokens, drawn up to the app's limit on this device.
private struct MemoryChart: View {
    let readings: [H2OMemoryReading]

    var body: some View {
        VStack(alignment: .leading) {
            if let now = readings.last {
                Text("\(bytes(now.active)) in use, \(bytes(now.unbounded)) if all tokens were kept")
            }
            Chart {
                ForEach(Array(readings.enumerated()), id: \.offset) { _, reading in
                    LineMark(
                        x: .value("Tokens", reading.tokens),
                        y: .value("Bytes", reading.unbounded), series: .value("Cache", "all")
                    )
                    .foregroundStyle(.secondary)
                    .lineStyle(StrokeStyle(lineWidth: 1.5, dash: [4, 3]))
                }
                ForEach(Array(readings.enumerated()), id: \.offset) { _, reading in
                    LineMark(
                        x: .value("Tokens", reading.tokens),
                        y: .value("Bytes", reading.active), series: .value("Cache", "kept"))
                }
                if let limit = readings.last?.limit {
                    RuleMark(y: .value("Bytes", limit))
                        .foregroundStyle(.red)
                }
            }
            .chartYAxis {
                AxisMarks { value in
                    AxisGridLine()
                    AxisValueLabel {
                        if let count = value.as(Int.self) { Text(verbatim: bytes(count)) }
                    }
                }
            }
            .frame(height: 110)
            .accessibilityLabel("Memory over the conversation")
        }
    }

    private func bytes(_ count: Int) -> String {
        Int64(count).formatted(.byteCount(style: .memory))
    }
}

#Preview {
    StatusView(chat: H2OChat { throw CancellationError() })
}
