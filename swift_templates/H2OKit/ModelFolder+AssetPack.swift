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
    /// - Throws: ``H2OLoadingError``, or an error of Background Assets
    public static func find(assetPack id: String) async throws -> URL {
        if let folder = try? find() { return folder }
        // Background Assets ends the process of an app that has not declared its packs.
        guard Bundle.main.object(forInfoDictionaryKey: "BAHasManagedAssetPacks") != nil else {
            throw H2OLoadingError.assetPackNotDeclared(id: id)
        }
        #if canImport(BackgroundAssets) && compiler(>=6.2)
            if #available(iOS 26, macOS 26, *) {
                let manager = AssetPackManager.shared
                let pack = try await manager.assetPack(withID: id)
                try await manager.ensureLocalAvailability(of: pack)
                return try manager.url(for: FilePath("Model"))
            }
        #endif
        throw H2OLoadingError.assetPackUnsupported(id: id)
    }
}
