import H2OSessions
import SwiftUI
import UIKit

/// Measures the model on this device, for developers, and shares a file that
/// `h2o-pack plan --measured` compares with the plan.
struct MeasureView: View {
    /// Whether the settings lead to this screen: whether Xcode passes the argument at launch.
    static let isShown = ProcessInfo.processInfo.arguments.contains("-measurements")

    let model: H2OModel
    @State private var isMeasuring = false
    @State private var measurements: H2OMeasurements?
    @State private var file: URL?
    @State private var problem: String?

    var body: some View {
        Form {
            if isMeasuring {
                ProgressView("Measuring for some minutes. Keep the app open.")
            } else {
                Button("Measure", systemImage: "gauge.with.needle") { Task { await measure() } }
            }
            if let problem { Text(verbatim: problem) }
            ForEach(measurements?.runs ?? [], id: \.self) { run in
                Text(
                    "\(Int(run.tokensPerSecond)) tokens per second after \(run.promptTokens) tokens"
                )
            }
            ForEach(measurements?.leftOut ?? [], id: \.self) { prompt in
                Text(verbatim: "\(prompt.promptTokens): \(prompt.reason)")
            }
            if let file {
                ShareLink(item: file) { Label("Share", systemImage: "square.and.arrow.up") }
            }
        }
        .navigationTitle("Measurements")
    }

    private func measure() async {
        isMeasuring = true
        UIApplication.shared.isIdleTimerDisabled = true  // a locked phone computes nothing
        defer {
            UIApplication.shared.isIdleTimerDisabled = false
            isMeasuring = false
        }
        do {
            let measured = try await model.measure()
            let file = URL.temporaryDirectory.appending(path: "measurements.json")
            try Data(measured.json.utf8).write(to: file)
            (measurements, self.file, problem) = (measured, file, nil)
        } catch {
            problem = error.localizedDescription
        }
    }
}

#Preview {
    MeasureView(model: .scripted(["Hello"]))
}
