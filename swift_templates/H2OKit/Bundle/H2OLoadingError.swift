import Foundation

/// Why a model was not loaded: it was not found or downloaded, its files were changed, or it
/// cannot run on this device. Sizes are in bytes.
public enum H2OLoadingError: LocalizedError, Hashable, Sendable {
    /// None of the folders that were searched contains the model.
    case notFound(searched: [URL])
    /// The app or the model's folder has no `manifest.json`.
    case noManifest(in: URL)
    /// This version cannot read the manifest's format. `format` is the one that the manifest
    /// names, nil if it names none.
    case otherManifest(format: Int?)
    /// The manifest does not say how to fetch the model: the package was made without
    /// `--download`.
    case noPieces
    /// How the folder differs from its manifest, for the developer.
    case damaged(URL, differences: [String])

    /// The download was stopped. Pieces that have arrived are kept.
    case stopped
    /// The server could not be reached, or the connection broke. `reason` is the system's
    /// description. Pieces that have arrived are kept.
    case network(reason: String)
    /// The server answered with an unexpected HTTP status. Pieces that have arrived are kept.
    case serverStatus(Int, path: String)
    /// The server sent the whole file in answer to a request for a part of it.
    case serverWithoutRanges(path: String)
    /// The file on the server has another size than the manifest says.
    case serverSize(expected: Int, found: Int, path: String)
    /// The file on the server differs from the manifest from this byte on, after repeated
    /// requests.
    case serverContent(offset: Int, path: String)
    /// The device has too little free storage.
    case noSpace(needed: Int, free: Int)
    /// A piece that arrived could not be written to disk. `reason` is the system's description.
    case notStored(reason: String)
    /// The model is in this asset pack, but the app's Info.plist does not declare asset packs.
    case assetPackNotDeclared(id: String)
    /// The system, or the SDK that the app was built with, is older than iOS 26.
    case assetPackUnsupported(id: String)

    /// None of these folders contains MLX's compiled kernels.
    case noMetalLibrary(searched: [URL])
    /// The model needs more memory than is free. In a package of several models this holds for
    /// each; `needs` has the plans by model name.
    case noMemory(needs: [String: MemoryPlan], free: Int)
}

extension H2OLoadingError {
    public var errorDescription: String? {
        switch self {
        case .notFound(let searched):
            "No model's config.json was found in \(Self.list(searched)). Add the package's "
                + "Model folder to the app target as a folder reference, or set H2O_MODEL_DIR."
        case .noManifest(let place):
            "\(place.path) has no \(ModelManifest.fileName) of its model. Add the package's Model "
                + "folder to the app's target, or only its \(ModelManifest.fileName) if the app "
                + "downloads the model."
        case .otherManifest(let format):
            "The model's manifest has \(format.map { "format \($0)" } ?? "no format"); this "
                + "version reads \(ModelManifest.format). Make the package again."
        case .noPieces:
            "The app's manifest does not say how to download the model. Make the package with "
                + "--download."
        case .damaged(let folder, let differences):
            "The model in \(folder.path) has changed since it was bundled: "
                + differences.joined(separator: "; ")
                + ". Install the app again, or bundle the model again."
        case .stopped:
            "The download was stopped. The downloaded part is kept."
        case .network(let reason):
            "The model was not downloaded. Check the connection, and try again. (\(reason))"
        case .serverStatus(let status, let path):
            "The server answered \(status) for \(path). Try again later."
        case .serverWithoutRanges(let path):
            "The server sends \(path) only as a whole. It must answer requests for ranges of "
                + "bytes."
        case .serverSize(let expected, let found, let path):
            "The server has a \(path) of \(found) bytes instead of \(expected). Update the app, "
                + "or try again later."
        case .serverContent(let offset, let path):
            "The server's \(path) differs from the file that this app needs, from byte "
                + "\(offset) on. Update the app, or try again later."
        case .noSpace(let needed, let free):
            "The model needs \(Self.megabytes(needed)) MB more, and \(Self.megabytes(free)) MB "
                + "are free. Free some storage, and try again."
        case .notStored(let reason):
            "The model could not be stored: \(reason)"
        case .assetPackNotDeclared(let id):
            "The model is in the asset pack \(id), but the app does not declare asset packs. "
                + "Set BAHasManagedAssetPacks, BAUsesAppleHosting and BAAppGroupID in Info.plist."
        case .assetPackUnsupported(let id):
            "The model is in the asset pack \(id), which needs iOS 26 or macOS 26 and Xcode 26."
        case .noMetalLibrary(let searched):
            "The app has no compiled Metal kernels: no mlx-swift_Cmlx.bundle with a "
                + "default.metallib is in \(Self.list(searched)). `swift build` does not compile "
                + "the kernels; build with Xcode or xcodebuild. If Xcode has no Metal compiler, "
                + "run `xcodebuild -downloadComponent MetalToolchain`."
        case .noMemory(let needs, let free):
            "\(free) bytes are free, and \(Self.text(needs)). Release other memory, check that "
                + "the app has both memory entitlements, or package a smaller model or a smaller "
                + "--max-kv."
        }
    }

    private static func list(_ folders: [URL]) -> String {
        folders.map(\.path).joined(separator: ", ")
    }

    private static func text(_ needs: [String: MemoryPlan]) -> String {
        needs.sorted { $0.value.total > $1.value.total }.map { id, plan in
            "\(id) needs \(plan.total) (weights \(plan.weights), caches \(plan.caches), "
                + "prefill \(plan.prefill), buffers \(plan.bufferCache), "
                + "before thoughts \(plan.thoughts))"
        }.joined(separator: ", ")
    }

    private static func megabytes(_ bytes: Int) -> Int { (bytes + 999_999) / 1_000_000 }
}
