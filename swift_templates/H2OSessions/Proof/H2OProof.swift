import Foundation
import H2OKit
import Observation

/// Shows what a model does on this device, and writes it down: what its caches keep and answer
/// beside Python's, memory beside the plan, speed at first and after ten minutes, how hot the device is, and what an app gets back when memory
/// is short. `h2o-pack prove --check` reads the report.
///
///     let proof = H2OProof()
///     await proof.run(model, settings: BundledModel.proofSettings)
///     if let report = proof.report { print(report) }
///
/// It takes a conversation of its own. The report names no person, and the device only by its
/// kind.
@MainActor @Observable
public final class H2OProof {
    /// Whether it runs.
    public private(set) var isRunning = false
    /// The part of the time that is over, from 0 to 1.
    public private(set) var share = 0.0
    /// A file of JSON, once it has run.
    public private(set) var report: URL?
    /// Why there is no report.
    public private(set) var problem: String?

    private let lasting: Duration
    private let asksForMoreMemory: Bool
    private let machine: ProofMachine
    private let folder: URL
    private var task: Task<Data, any Error>?

    /// - Parameter asksForMoreMemory: whether the app has the entitlement for more memory than
    ///   other apps get
    public convenience init(asksForMoreMemory: Bool = true) {
        self.init(
            lasting: .seconds(600), asksForMoreMemory: asksForMoreMemory, machine: .current,
            folder: FileManager.default.temporaryDirectory)
    }

    package init(
        lasting: Duration, asksForMoreMemory: Bool, machine: ProofMachine, folder: URL
    ) {
        self.lasting = lasting
        self.asksForMoreMemory = asksForMoreMemory
        self.machine = machine
        self.folder = folder
    }

    /// Runs for ten minutes, unless it runs already.
    ///
    /// - Parameters:
    ///   - model: loaded from its package
    ///   - settings: of the package's models
    public func run(_ model: H2OModel, settings: [H2OProofSetting]) async {
        guard !isRunning else { return }
        (isRunning, share, report, problem) = (true, 0, nil, nil)
        defer { (isRunning, task) = (false, nil) }
        guard let setting = settings.first(where: { $0.id == model.loaded.manifest?.model }) else {
            problem = "This model is not one of the package's."
            return
        }
        let run = ProofRun(
            model: model, setting: setting, lasting: lasting, machine: machine,
            asksForMoreMemory: asksForMoreMemory)
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

    /// Ends it without a report.
    public func cancel() { task?.cancel() }
}
