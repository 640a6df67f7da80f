import H2OKit
import SwiftUI

/// Shows the progress of the model's download, and its buttons. Empty if there is no download.
struct DownloadView: View {
    @Bindable var download: ModelDownload

    var body: some View {
        if let progress = download.progress {
            VStack(alignment: .leading, spacing: 8) {
                ProgressView(value: Double(progress.received), total: Double(progress.total)) {
                    Text("Downloading the model")
                } currentValueLabel: {
                    Text("\(bytes(progress.received)) of \(bytes(progress.total))")
                }
                if let rate = progress.bytesPerSecond.map({ Int($0) }),
                    let remaining = progress.remaining
                {
                    Text("\(bytes(rate)) per second, \(time(remaining)) left")
                }
                Toggle("Mobile data and Low Data Mode", isOn: $download.allowsExpensiveNetwork)
                Button("Stop downloading") { download.stop() }
                    .buttonStyle(.bordered)
            }
            .font(.caption)
            .monospacedDigit()
            .padding()
            .background(.bar)
        }
    }

    private func bytes(_ count: Int) -> String {
        Int64(count).formatted(.byteCount(style: .file))
    }

    private func time(_ duration: Duration) -> String {
        duration.formatted(.units(allowed: [.hours, .minutes, .seconds], maximumUnitCount: 2))
    }
}
