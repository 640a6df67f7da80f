import Foundation

extension H2OLoadingError {
    public var errorDescription: String? {
        switch self {
        case .notFound(let searched):
            "No folder with a model's config.json at \(Self.list(searched)). Add the package's "
                + "Model folder to the app target as a folder reference, or set H2O_MODEL_DIR."
        case .noManifest(let place):
            "\(place.path) has no \(ModelManifest.fileName) of its model. Add the package's Model "
                + "folder to the app's target, or its \(ModelManifest.fileName) alone where the "
                + "app fetches the model."
        case .otherManifest(let format):
            "The model's manifest has \(format.map { "format \($0)" } ?? "no format"); this "
                + "version reads \(ModelManifest.format). Make the package again."
        case .noPieces:
            "The app's manifest does not say how to fetch the model. Make the package with "
                + "--download."
        case .damaged(let folder, let problems):
            "The model in \(folder.path) is not as it was bundled: "
                + problems.map(\.text).joined(separator: "; ")
                + ". Install the app again, or bundle the model again."
        case .stopped:
            "The download was stopped. What has arrived is kept."
        case .network(let reason):
            "The model was not fetched. Check the connection, and try again. (\(reason))"
        case .server(let problem, let path):
            problem.text(path)
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
            "The app has no compiled Metal kernels: there is no default.metallib in "
                + "mlx-swift_Cmlx.bundle, looked for in \(Self.list(searched)). `swift build` "
                + "makes none: build with Xcode or xcodebuild, and if Xcode lacks its Metal "
                + "compiler, run `xcodebuild -downloadComponent MetalToolchain`."
        case .noMemory(let needs, let free):
            "\(free) bytes are free, and \(needs.map(\.text).joined(separator: ", ")). Release "
                + "other memory, check that the app has both memory entitlements, or package a "
                + "smaller model or a smaller --max-kv."
        }
    }

    private static func list(_ folders: [URL]) -> String {
        folders.map(\.path).joined(separator: ", ")
    }

    private static func megabytes(_ bytes: Int) -> Int { (bytes + 999_999) / 1_000_000 }
}

extension H2OLoadingError.FileProblem {
    fileprivate var text: String {
        switch self {
        case .missing(let path): "\(path) is missing"
        case .size(let path, let expected, let found):
            "\(path) has \(found) bytes instead of \(expected)"
        case .content(let path): "\(path) has another sha256"
        case .stray(let path): "\(path) does not belong there"
        case .outside(let path): "\(path) lies outside the folder"
        }
    }
}

extension H2OLoadingError.ServerProblem {
    fileprivate func text(_ path: String) -> String {
        switch self {
        case .status(let status):
            "The server answered \(status) for \(path). Try again later."
        case .noRanges:
            "The server sends \(path) only as a whole. It must answer requests for ranges of "
                + "bytes."
        case .size(let expected, let found):
            "The server has a \(path) of \(found) bytes instead of \(expected). Update the app, "
                + "or try again later."
        case .content(let offset):
            "The server has another \(path) than this app needs, from byte \(offset) on. Update "
                + "the app, or try again later."
        }
    }
}

extension H2OLoadingError.Need {
    fileprivate var text: String {
        "\(id) needs \(plan.total) (weights \(plan.weights), caches \(plan.caches), "
            + "prefill \(plan.prefill), buffers \(plan.bufferCache))"
    }
}
