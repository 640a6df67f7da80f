import H2OKit
import SwiftUI

/// Asks the user before the first download of the model, which App Review requires.
struct WelcomeView: View {
    @Bindable var download: ModelDownload
    /// The size of the download.
    let bytes: Int
    let begin: @MainActor () -> Void

    var body: some View {
        ContentUnavailableView {
            Label("Download the model", systemImage: "arrow.down.circle")
        } description: {
            Text("The model runs on this device, and nothing is sent anywhere.")
            Text("The download is \(size). It continues while the app is closed.")
        } actions: {
            Toggle("Mobile data and Low Data Mode", isOn: $download.allowsExpensiveNetwork)
            Button("Download", action: begin)
                .buttonStyle(.borderedProminent)
        }
    }

    private var size: String { Int64(bytes).formatted(.byteCount(style: .file)) }
}
