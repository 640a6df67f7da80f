import Foundation
import Observation

/// Says what a user must confirm, fetches a model as an app does, says how it ended, and stops as it
/// is told to.
///
///     program SOURCE MANIFEST FOLDER [FREE BYTES] [STOP AFTER BYTES]
@main @MainActor
struct Program {
    static func main() async throws {
        let arguments = CommandLine.arguments
        let free = arguments.count > 4 ? Int(arguments[4]) : nil
        let stop = arguments.count > 5 ? Int(arguments[5]) : nil
        let settings = ModelDownload.Settings(
            manifest: try Data(contentsOf: URL(filePath: arguments[2])),
            root: URL(filePath: arguments[3], directoryHint: .isDirectory),
            freeBytes: { _ in free })
        let download = ModelDownload(from: URL(string: arguments[1])!, settings: settings)
        print("confirm \(download.bytesToConfirm ?? 0)")
        if let stop { watch(download) { if $0.received >= stop { download.stop() } } }
        do {
            print("folder \(try await download.folder().path)")
        } catch let error as H2OLoadingError {
            print("error \(error)\n\(error.localizedDescription)")
        }
        assert(download.progress == nil)
    }

    /// Calls back at each change of the progress.
    private static func watch(
        _ download: ModelDownload, _ change: @escaping @MainActor (ModelDownloadProgress) -> Void
    ) {
        withObservationTracking {
            if let progress = download.progress { change(progress) }
        } onChange: {
            Task { @MainActor in watch(download, change) }
        }
    }
}
