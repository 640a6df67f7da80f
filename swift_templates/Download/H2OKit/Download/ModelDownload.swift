import Foundation
import Observation

#if canImport(FoundationNetworking)
    import FoundationNetworking
#endif

/// Downloads the app's model from a server of the app's developer, and keeps it on the device.
///
/// The app contains the model's `manifest.json`, which has a digest of each piece of each file.
/// The download therefore never accepts other content. On Apple's systems the download continues
/// while the app does not run. After an interruption it continues with the missing pieces.
@MainActor @Observable
public final class ModelDownload {
    /// The identifier of the background session, for `backgroundTask(.urlSession(_:))`.
    public nonisolated static let sessionIdentifier = "h2o-pack.model"

    /// The progress; nil while nothing is downloaded.
    public private(set) var progress: ModelDownloadProgress?

    /// Whether to download over a network that the system calls expensive, such as a cellular
    /// network, and in Low Data Mode.
    public var allowsExpensiveNetwork = false {
        didSet { if allowsExpensiveNetwork != oldValue { transfer?.restart() } }
    }

    /// The bytes of the model, which the user should agree to before the first download begins;
    /// nil if the model, or a part of it, is on the device.
    public var bytesToConfirm: Int? {
        guard (try? ModelFolder.find()) == nil, let store = try? settings.store(),
            !store.hasBegun
        else { return nil }
        return store.manifest.size
    }

    private let source: URL
    private let settings: Settings
    @ObservationIgnored private var transfer: PieceTransfer?
    @ObservationIgnored private var session: URLSession?
    @ObservationIgnored private var running: Task<URL, any Error>?
    @ObservationIgnored private var isStopping = false

    /// - Parameter source: the address of the folder to which the files of the package's `Model`
    ///   folder were uploaded
    public convenience init(from source: URL) {
        self.init(from: source, settings: Settings())
    }

    package init(from source: URL, settings: Settings) {
        (self.source, self.settings) = (source, settings)
    }

    /// Returns the model's folder, after downloading the model if needed. A second call waits
    /// for the first.
    ///
    /// - Throws: ``H2OLoadingError``
    public func folder() async throws -> URL {
        if let running { return try await running.value }
        let task = Task { try await fetch() }
        running = task
        defer { (running, progress, isStopping) = (nil, nil, false) }
        return try await task.value
    }

    /// Stops the download: ``folder()`` throws ``H2OLoadingError/stopped``. Pieces that have
    /// arrived are kept.
    public func stop() {
        guard running != nil, !isStopping else { return }
        isStopping = true
        transfer?.stop()
    }

    /// The folder of a model that an earlier launch downloaded; nil if there is none.
    package nonisolated static func fetched(_ settings: Settings = Settings()) -> URL? {
        (try? settings.store())?.whole
    }

    private func fetch() async throws -> URL {
        let store = try settings.store()
        if let folder = store.whole { return folder }
        let connection = connection(to: store)
        do {
            try await Self.prepare(store)
            for _ in 0 ..< PieceQueue.attempts {
                let missing = await Self.missing(in: store)
                if missing.isEmpty { return try store.finish() }
                try checkSpace(for: missing)
                try await fetch(missing, over: connection, size: store.manifest.size)
            }
        } catch let error as H2OLoadingError {
            throw error
        } catch {
            throw H2OLoadingError.notStored(reason: error.localizedDescription)
        }
        throw H2OLoadingError.notStored(reason: "The disk returned other bytes than were written.")
    }

    private func fetch(
        _ missing: [ModelPiece], over connection: (PieceTransfer, URLSession), size: Int
    ) async throws {
        let (transfer, session) = connection
        var queue = PieceQueue(missing, ofModelWith: size)
        for task in await session.downloads {
            if let piece = transfer.piece(of: task), missing.contains(piece) {
                queue.started(piece, task: task.taskIdentifier)
            } else {
                task.cancel()
            }
        }
        defer { for task in queue.tasks { session.cancel(task) } }
        var (rate, lastShown) = (TransferRate(), ContinuousClock.now)
        progress = ModelDownloadProgress(received: queue.received, total: size)
        _ = rate.add(total: queue.received, at: lastShown)
        start(&queue, transfer, session)
        for await event in transfer.events {
            var isNews = true
            switch event {
            case .arrived(let bytes, let task):
                queue.arrived(bytes, task: task)
                isNews = lastShown.duration(to: .now) > .milliseconds(100)
            case .ended(let piece, let task, let error):
                try queue.ended(piece, task: task, error)
            case .stop: throw H2OLoadingError.stopped
            case .restart:
                for task in queue.tasks { session.cancel(task) }
                queue.restart()
            }
            if queue.isEmpty { return }
            start(&queue, transfer, session)
            guard isNews else { continue }
            lastShown = .now
            progress?.received = queue.received
            progress?.bytesPerSecond = rate.add(total: queue.received, at: lastShown)
        }
    }

    /// Requests as many pieces as may be downloaded at a time.
    private func start(
        _ queue: inout PieceQueue, _ transfer: PieceTransfer, _ session: URLSession
    ) {
        while let piece = queue.next(atMost: settings.piecesAtOnce) {
            let task = transfer.start(
                piece, in: session, allowsExpensiveNetwork: allowsExpensiveNetwork)
            queue.started(piece, task: task)
        }
    }

    /// Returns the connection to the server. A process has only one, because only one background
    /// session may have a given name.
    private func connection(to store: DownloadStore) -> (PieceTransfer, URLSession) {
        if let transfer, let session { return (transfer, session) }
        let transfer = PieceTransfer(from: source, to: store)
        let session = URLSession(
            configuration: settings.configuration(), delegate: transfer, delegateQueue: nil)
        (self.transfer, self.session) = (transfer, session)
        return (transfer, session)
    }

    /// Checks that the missing pieces fit on the disk.
    ///
    /// - Throws: ``H2OLoadingError/noSpace(needed:free:)``
    private func checkSpace(for missing: [ModelPiece]) throws {
        // A piece takes its size twice while it is moved to its place.
        let largest = missing.map(\.count).max() ?? 0
        let needed = missing.map(\.count).reduce(0, +) + largest
        if let free = settings.freeBytes(settings.root), free < needed {
            throw H2OLoadingError.noSpace(needed: needed, free: free)
        }
    }

    private nonisolated static func prepare(_ store: DownloadStore) async throws {
        try store.prepare()
    }

    private nonisolated static func missing(in store: DownloadStore) async -> [ModelPiece] {
        store.missing()
    }
}

extension URLSession {
    /// The downloads that this or an earlier launch of the app has started.
    fileprivate var downloads: [URLSessionTask] {
        get async {
            await withCheckedContinuation { done in
                getAllTasks { done.resume(returning: $0) }
            }
        }
    }

    /// Cancels a task by its number.
    fileprivate func cancel(_ number: Int) {
        getAllTasks { tasks in
            for task in tasks where task.taskIdentifier == number { task.cancel() }
        }
    }
}

#if canImport(FoundationNetworking)
    import FoundationNetworking
#endif

extension ModelDownload {
    /// The environment of a download, which tests replace.
    package struct Settings: Sendable {
        /// The manifest that the app contains; nil if there is none.
        var manifest: @Sendable () -> Data? = {
            Bundle.main.url(forResource: ModelManifest.fileName, withExtension: nil)
                .flatMap { try? Data(contentsOf: $0) }
        }
        /// The folder for models.
        var root = Settings.applicationSupport.appending(
            path: "h2o-models", directoryHint: .isDirectory)
        /// The number of pieces to request at a time: all of them if the system downloads while
        /// the app does not run, because the app then cannot request more.
        var piecesAtOnce: Int
        var configuration: @Sendable () -> URLSessionConfiguration
        /// Returns the free bytes on the disk of a folder; nil if the system does not report them.
        var freeBytes: @Sendable (URL) -> Int? = Settings.freeBytes

        init() {
            #if canImport(Darwin)
                piecesAtOnce = .max
                configuration = {
                    let settings = URLSessionConfiguration.background(
                        withIdentifier: ModelDownload.sessionIdentifier)
                    settings.urlCache = nil
                    return settings
                }
            #else
                piecesAtOnce = 1
                configuration = Settings.inProcess
            #endif
        }

        /// Creates an environment for a download that ends when the process ends.
        package init(
            manifest: Data, root: URL,
            freeBytes: @escaping @Sendable (URL) -> Int? = Settings.freeBytes
        ) {
            self.manifest = { manifest }
            (self.root, self.freeBytes) = (root, freeBytes)
            (piecesAtOnce, configuration) = (1, Settings.inProcess)
        }

        func store() throws -> DownloadStore {
            guard let data = manifest() else {
                throw H2OLoadingError.noManifest(in: Bundle.main.bundleURL)
            }
            return try DownloadStore(manifest: data, root: root)
        }

        private static var applicationSupport: URL {
            let files = FileManager.default
            return files.urls(for: .applicationSupportDirectory, in: .userDomainMask).first
                ?? files.temporaryDirectory
        }

        @Sendable private static func inProcess() -> URLSessionConfiguration {
            let settings = URLSessionConfiguration.default
            settings.urlCache = nil
            return settings
        }

        @Sendable package static func freeBytes(at folder: URL) -> Int? {
            #if canImport(Darwin)
                let key = URLResourceKey.volumeAvailableCapacityForImportantUsageKey
                return try? folder.resourceValues(forKeys: [key])
                    .volumeAvailableCapacityForImportantUsage.map(Int.init)
            #else
                let attributes = try? FileManager.default.attributesOfFileSystem(
                    forPath: folder.path)
                return (attributes?[.systemFreeSize] as? NSNumber)?.intValue
            #endif
        }
    }
}

/// The progress of a model's download.
public struct ModelDownloadProgress: Hashable, Sendable {
    /// Bytes that have arrived, including those of earlier launches.
    public var received: Int
    /// Bytes of the model.
    public let total: Int
    /// Bytes per second over the last seconds; nil at first.
    public var bytesPerSecond: Double?

    /// The remaining time at this rate.
    public var remaining: Duration? {
        guard let bytesPerSecond, bytesPerSecond > 0 else { return nil }
        return .seconds(Double(total - received) / bytesPerSecond)
    }
}

/// The rate at which bytes arrive, over the last seconds.
package struct TransferRate {
    private static let window = Duration.seconds(5)
    private var samples = [(time: ContinuousClock.Instant, bytes: Int)]()

    /// - Returns: bytes per second; nil at the first call
    package mutating func add(total bytes: Int, at time: ContinuousClock.Instant) -> Double? {
        // Keeps the newest reading before the window, so that the rate covers the whole window.
        while samples.count > 1, samples[1].time.duration(to: time) >= Self.window {
            samples.removeFirst()
        }
        samples.append((time, bytes))
        let elapsed = samples[0].time.duration(to: time)
        guard elapsed > .zero else { return nil }
        return Double(bytes - samples[0].bytes) / (elapsed / .seconds(1))
    }
}

extension ModelFolder {
    /// Finds the folder as ``find(_:fetched:)`` does. If it is not there, downloads the model.
    ///
    /// - Throws: ``H2OLoadingError``
    package static func find(download: ModelDownload) async throws -> URL {
        if let folder = try? find() { return folder }
        return try await download.folder()
    }
}
