import Foundation

#if canImport(BackgroundAssets) && compiler(>=6.2)
    import BackgroundAssets
    import System
#endif

extension ModelFolder {
    /// Finds the folder as ``find()`` does. If there is none, looks in an asset pack, which is
    /// downloaded if the device does not have it yet. Needs iOS 26.
    ///
    /// - Parameter id: the `assetPackID` of the package's `AssetPack/Manifest.json`
    /// - Throws: ``ModelAssetPackError``, or an error of Background Assets
    public static func find(assetPack id: String) async throws -> URL {
        if let folder = try? find() { return folder }
        // Background Assets ends the process of an app that has not declared its packs.
        guard Bundle.main.object(forInfoDictionaryKey: "BAHasManagedAssetPacks") != nil else {
            throw ModelAssetPackError.notDeclared(id)
        }
        #if canImport(BackgroundAssets) && compiler(>=6.2)
            if #available(iOS 26, macOS 26, *) {
                let manager = AssetPackManager.shared
                let pack = try await manager.assetPack(withID: id)
                try await manager.ensureLocalAvailability(of: pack)
                return try manager.url(for: FilePath("Model"))
            }
        #endif
        throw ModelAssetPackError.unsupported(id)
    }
}

public enum ModelAssetPackError: LocalizedError, Hashable, Sendable {
    /// The app's Info.plist lacks BAHasManagedAssetPacks.
    case notDeclared(String)
    /// The system, or the SDK that the app was built with, is older than iOS 26.
    case unsupported(String)

    public var errorDescription: String? {
        switch self {
        case .notDeclared(let id):
            "The model is in the asset pack \(id), but the app does not declare asset packs. "
                + "Set BAHasManagedAssetPacks, BAUsesAppleHosting and BAAppGroupID in Info.plist."
        case .unsupported(let id):
            "The model is in the asset pack \(id), which needs iOS 26 or macOS 26 and Xcode 26."
        }
    }
}
