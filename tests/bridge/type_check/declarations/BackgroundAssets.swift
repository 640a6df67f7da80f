@_exported import AppleFoundation
import ExtensionFoundation
import System

public struct AssetPack: Hashable, Identifiable, Sendable {
    public let id: String
}

public actor AssetPackManager {
    public enum DownloadStatusUpdate: Sendable {
        case began(AssetPack)
        case paused(AssetPack)
        case downloading(AssetPack, Progress)
        case finished(AssetPack)
        case failed(AssetPack, any Error)
    }

    public static var shared: AssetPackManager { fatalError() }

    public func assetPack(withID id: String) async throws -> AssetPack { fatalError() }
    public func ensureLocalAvailability(of assetPack: AssetPack) async throws {}
    public nonisolated func url(for path: FilePath) throws -> URL { fatalError() }
    public nonisolated func statusUpdates(
        forAssetPackWithID id: String
    ) -> some Sendable & AsyncSequence<DownloadStatusUpdate, Never> {
        AsyncStream<DownloadStatusUpdate> { _ in }
    }
}

public protocol ManagedDownloaderExtension: AppExtension {
    func shouldDownload(_ assetPack: AssetPack) -> Bool
}
