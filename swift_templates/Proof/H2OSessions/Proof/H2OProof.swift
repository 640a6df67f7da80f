import Foundation
import H2OKit
import Observation

/// Measures a model on this device for ten minutes and makes a report. The report says whether the
/// caches compute the same as the caches in Python, compares the memory with the plan, and has the
/// speed in the first and in the last minute. `h2o-pack prove --import` reads it.
///
///     let proof = H2OProof()
///     await proof.run(model, settings: BundledModel.proofSettings)
///     if let report = proof.report { print(report) }
///
/// The measurement uses a separate conversation. The report contains the kind of the device, but no
/// name of a person or of the device.
@MainActor @Observable
public final class H2OProof {
    /// Whether the measurement is running.
    public private(set) var isRunning = false
    /// The share of the ten minutes that has passed, from 0 to 1.
    public private(set) var share = 0.0
    /// The report, a JSON file; nil until the measurement has ended.
    public private(set) var report: URL?
    /// The error message if the measurement failed; otherwise nil.
    public private(set) var problem: String?

    private let duration: Duration
    private let machine: ProofReport.Machine
    private let folder: URL
    private var task: Task<Data, any Error>?

    public convenience init() {
        self.init(
            duration: .seconds(600), machine: .current,
            folder: FileManager.default.temporaryDirectory)
    }

    package init(duration: Duration, machine: ProofReport.Machine, folder: URL) {
        (self.duration, self.machine, self.folder) = (duration, machine, folder)
    }

    /// Runs for ten minutes, unless a measurement is running.
    ///
    /// - Parameters:
    ///   - model: the loaded model of the package
    ///   - settings: the settings of the package's models
    public func run(_ model: H2OModel, settings: [H2OProofSetting]) async {
        guard !isRunning else { return }
        (isRunning, share, report, problem) = (true, 0, nil, nil)
        defer { (isRunning, task) = (false, nil) }
        guard let setting = settings.first(where: { $0.id == model.loaded.manifest?.model }) else {
            problem = "This model is not in the package."
            return
        }
        let run = ProofRun(model: model, setting: setting, duration: duration, machine: machine)
        let task = Task {
            try await run { share in Task { @MainActor in self.share = share } }
        }
        self.task = task
        do {
            let file = folder.appending(path: "h2o-proof.json")
            try await task.value.write(to: file, options: .atomic)
            report = file
        } catch is CancellationError {
        } catch {
            problem = error.localizedDescription
        }
    }

    /// Stops the measurement without a report.
    public func cancel() { task?.cancel() }
}

/// A model's settings and planned memory, with which ``H2OProof`` compares the device.
public struct H2OProofSetting: Sendable {
    /// The model's id in its manifest.
    public let id: String
    /// The number of rows that a layer keeps.
    public let maxKV: Int
    /// The storage of rows, by its name in `h2o-pack`.
    public let kv: String
    /// Versions of `h2o-pack`, mlx-swift and mlx-swift-lm.
    public let versions: [String: String]
    /// Planned bytes on a phone and on a tablet, by the name of the term in the plan.
    public let phone, tablet: [String: Int]
    /// The `trace.json` of one recorded layer; nil if the package has no trace.
    public let trace: URL?

    public init(
        id: String, maxKV: Int, kv: String, versions: [String: String],
        phone: [String: Int], tablet: [String: Int], trace: URL? = nil
    ) {
        (self.id, self.maxKV, self.kv) = (id, maxKV, kv)
        (self.versions, self.phone, self.tablet) = (versions, phone, tablet)
        self.trace = trace
    }
}
