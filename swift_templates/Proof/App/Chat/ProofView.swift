import H2OChatScreen
import H2OSessions
import SwiftUI

/// Opens ``ProofView``.
struct ProofButton: View {
    let chat: H2OChat
    let settings: [H2OProofSetting]
    @State private var isOpen = false

    var body: some View {
        Button("Prove it", systemImage: "checkmark.seal") { isOpen = true }
            .sheet(isPresented: $isOpen) {
                NavigationStack { ProofView(chat: chat, settings: settings) }
            }
    }
}

/// Measures the model on this device, and lets the user share the report.
struct ProofView: View {
    let chat: H2OChat
    let settings: [H2OProofSetting]
    @State private var proof = H2OProof()

    var body: some View {
        List {
            Section {
                Text("The app measures the model's speed and memory for ten minutes.")
                Text("Keep the app open until then. The report stays here unless you share it.")
            }
            Section {
                if proof.isRunning {
                    ProgressView("Replying", value: proof.share)
                    Button("Stop") { proof.cancel() }
                } else {
                    Button("Start") { start() }
                        .disabled(chat.model == nil)
                }
                if let report = proof.report {
                    ShareLink(item: report)
                }
                if let problem = proof.problem {
                    Label(problem, systemImage: "exclamationmark.triangle")
                }
            }
        }
        .navigationTitle("Prove it")
        .navigationBarTitleDisplayMode(.inline)
        .onChange(of: proof.isRunning) { _, isRunning in
            UIApplication.shared.isIdleTimerDisabled = isRunning
        }
        .onDisappear {
            proof.cancel()
            UIApplication.shared.isIdleTimerDisabled = false
        }
    }

    private func start() {
        guard let model = chat.model else { return }
        Task { await proof.run(model, settings: settings) }
    }
}

#Preview {
    NavigationStack {
        ProofView(chat: H2OChat { throw CancellationError() }, settings: [])
    }
}
