import Foundation

/// Why a model was not loaded: it was not found or fetched, is not as it was bundled, or cannot
/// run here. Sizes are in bytes.
public enum H2OLoadingError: LocalizedError, Hashable, Sendable {
    /// No folder has the model.
    case notFound(searched: [URL])
    /// The app or the model's folder has no `manifest.json`.
    case noManifest(in: URL)
    /// The manifest is not of the form that this version reads. `format` is the one that it
    /// names; nil if it names none.
    case otherManifest(format: Int?)
    /// The manifest does not say how to fetch the model: the package was made without
    /// `--download`.
    case noPieces
    /// The folder differs from its manifest.
    case damaged(URL, [FileProblem])

    /// ``ModelDownload/stop()`` was called. What has arrived is kept.
    case stopped
    /// The server was not reached, or the connection broke. The system says why. What has arrived
    /// is kept.
    case network(reason: String)
    /// The server has something else than the model's file at this path. What has arrived is kept.
    case server(ServerProblem, path: String)
    /// There is too little room on the device's storage.
    case noSpace(needed: Int, free: Int)
    /// What arrived could not be kept. The system says why.
    case notStored(reason: String)
    /// The app's Info.plist does not declare asset packs, and the model is in the one named.
    case assetPackNotDeclared(id: String)
    /// The system, or the SDK that the app was built with, is older than iOS 26.
    case assetPackUnsupported(id: String)

    /// None of these folders contains MLX's compiled kernels.
    case noMetalLibrary(searched: [URL])
    /// The model takes more memory than is free; of several, each does.
    case noMemory(needs: [Need], free: Int)

    /// One difference between a folder and its manifest.
    public enum FileProblem: Hashable, Sendable {
        case missing(path: String)
        case size(path: String, expected: Int, found: Int)
        /// The size is right, but the sha256 is not.
        case content(path: String)
        /// A weights file that the manifest does not list.
        case stray(path: String)
        /// The manifest lists a path outside the folder.
        case outside(path: String)
    }

    /// What a server answers in place of a file.
    public enum ServerProblem: Hashable, Sendable {
        /// Another HTTP status than asked for.
        case status(Int)
        /// The file as a whole, where a part of it was asked for.
        case noRanges
        /// A file of another size.
        case size(expected: Int, found: Int)
        /// A file with other bytes from this one on, also when it was asked for again.
        case content(offset: Int)
    }

    /// What a model takes.
    public struct Need: Identifiable, Hashable, Sendable {
        /// The model's name.
        public let id: String
        public let plan: MemoryPlan

        package init(id: String, plan: MemoryPlan) {
            (self.id, self.plan) = (id, plan)
        }
    }
}
