import Foundation
import MLX

/// Why caches were not made, saved or read.
public enum H2OCacheError: LocalizedError, Hashable, Sendable {
    /// A setting is invalid, or contradicts another one. `layer` is the layer whose budgets
    /// cause this; nil if the configuration of all layers does.
    case invalidConfiguration(ConfigurationProblem, layer: Int? = nil)
    /// A setting names a layer that evicts nothing in this model; `evicting` lists the layers
    /// that evict.
    case layerKeepsOwnCache(Int, setting: String, model: String, evicting: [Int])
    /// The budgets have another number of entries than the model has caches.
    case wrongLayerCount(found: Int, expected: Int, model: String)
    /// The model would compute wrong results with evicted rows, or it has no cache to bound.
    case unfitModel(String, reason: String)
    /// A parameter of generation contradicts H2O caches.
    case excludedOption(String)
    /// The storage has other bits for the newest tokens, which only a bounded cache has.
    case recentWithoutBound(H2OStorage)
    /// The budgets are in another format, `found`, than the one that this version reads.
    case otherBudgetsFormat(found: Int, known: Int, file: URL? = nil)

    /// The saved data is of another kind or version. `known` lists the formats that this
    /// version reads.
    case otherFormat(found: String, known: [String], file: URL? = nil)
    /// The saved data was cut short or changed.
    case damaged(reason: String, file: URL? = nil)
    /// The file belongs to another model; `found` and `expected` are names of models.
    case otherModel(found: String, expected: String, file: URL)
    /// The file's caches have other settings; `found` and `expected` are JSON.
    case otherSettings(found: String, expected: String, file: URL)
    /// The file was made with another chat template.
    case otherTemplate(file: URL)
    /// The disk is full, so the file or folder was not written.
    case noSpace(URL)
    /// The device is locked, and the file or folder can be opened only after the user unlocks it.
    case locked(URL)
    /// The cache is empty, or its kind cannot be saved; `found` describes it.
    case notSavable(index: Int, found: String)
    /// An archive in files is missing, belongs to another cache, or cannot be read or written. The
    /// code of the error says why, such as `archive_locked`.
    case archive(MLXFast.H2OError)
}

extension H2OCacheError {
    /// The error for a full disk or a locked device; nil for any other error.
    package init?(fileError error: any Error, _ file: URL) {
        let own = error as NSError
        let causes = [own] + [own.userInfo[NSUnderlyingErrorKey] as? NSError].compactMap { $0 }
        func isCause(_ domain: String, _ codes: Int32...) -> Bool {
            causes.contains { $0.domain == domain && codes.contains(Int32($0.code)) }
        }
        let full = Int32(CocoaError.fileWriteOutOfSpace.rawValue)
        if isCause(NSPOSIXErrorDomain, ENOSPC, EDQUOT) || isCause(NSCocoaErrorDomain, full) {
            self = .noSpace(file)
            return
        }
        #if !os(macOS)
            // iOS answers EPERM for a protected file, and EACCES for missing permissions.
            if isCause(NSPOSIXErrorDomain, EPERM) {
                self = .locked(file)
                return
            }
        #endif
        return nil
    }

    public var errorDescription: String? {
        switch self {
        case .invalidConfiguration(let problem, let layer):
            (layer.map { "layers[\($0)] of the H2O budgets: " } ?? "") + problem.text
        case .layerKeepsOwnCache(let layer, let setting, let model, let evicting):
            H2OErrorText.recallLayers(
                setting: setting, layer: layer, family: model,
                known: evicting.map(String.init).joined(separator: ", "))
        case .wrongLayerCount(let found, let expected, let model):
            H2OErrorText.wrongLayerCount(layers: found, family: model, caches: expected)
        case .unfitModel(let model, let reason):
            H2OErrorText.unfitModel(family: model, reason: reason)
        case .excludedOption(let parameter):
            H2OErrorText.excludedOption(
                option: parameter,
                reason:
                    "an H2O configuration bounds the cache by maxSize, and its storage says how "
                    + "rows are quantized")
        case .recentWithoutBound(let storage):
            H2OErrorText.recentWithoutBound(kv: storage.rawValue)
        case .otherBudgetsFormat(let found, let known, let file):
            place(file) + H2OErrorText.otherFormat(found: "\(found)", format: "\(known)")
        case .otherFormat(let found, let known, let file):
            place(file)
                + H2OErrorText.otherStateFormat(
                    found: found, known: known.joined(separator: ", "))
        case .damaged(let reason, let file):
            H2OErrorText.damaged(place: file?.path ?? "the saved cache", reason: reason)
        case .otherModel(let found, let expected, let file):
            place(file) + H2OErrorText.otherModel(found: found, expected: expected)
        case .otherSettings(let found, let expected, let file):
            place(file) + H2OErrorText.otherSettings(found: found, expected: expected)
        case .otherTemplate(let file): place(file) + H2OErrorText.otherTemplate()
        case .noSpace(let file): place(file) + H2OErrorText.noSpace()
        case .locked(let file): place(file) + H2OErrorText.locked()
        case .notSavable(let index, let found):
            H2OErrorText.notAnH2oCache(index: index, found: found)
        case .archive(let error): error.message
        }
    }

    private func place(_ file: URL?) -> String { file.map { "\($0.path): " } ?? "" }
}

extension MLXFast.H2OError {
    /// errno of an archive in files, or 0; nil if the error is not about such an archive.
    fileprivate var number: Int32? { values["error"].flatMap { Int32($0) } }

    /// What is wrong and what to do.
    var message: String {
        let reason = number.map { $0 == 0 ? H2OErrorText.changed : String(cString: strerror($0)) }
        let message = H2OErrorText.ofCore(code) { name in
            name == "reason" ? reason ?? "" : text(name)
        }
        return message?.all ?? code
    }
}

extension H2OCacheError {
    /// Runs work in the core, and turns the core's errors into errors of this type.
    ///
    /// - Throws: ``H2OCacheError``, or an error of the work
    package static func ofCore<Result>(_ work: () throws -> Result) throws -> Result {
        do {
            return try work()
        } catch let refusal as MLXFast.H2OError {
            throw H2OCacheError(refusal)
        }
    }

    /// Runs work in the core on saved data, and reports every other error as damage.
    ///
    /// - Throws: ``H2OCacheError``
    static func ofSaved<Result>(_ work: () throws -> Result) throws -> Result {
        do {
            return try ofCore(work)
        } catch let error as MLXError {
            throw H2OCacheError.damaged(reason: error.localizedDescription)
        }
    }

    /// Reads a file, and adds its URL to an error that names no file.
    package static func reading<Result>(
        _ file: URL, _ work: () throws -> Result
    ) throws -> Result {
        do {
            return try work()
        } catch H2OCacheError.damaged(let reason, nil) {
            throw H2OCacheError.damaged(reason: reason, file: file)
        } catch H2OCacheError.otherFormat(let found, let known, nil) {
            throw H2OCacheError.otherFormat(found: found, known: known, file: file)
        } catch H2OCacheError.otherBudgetsFormat(let found, let known, nil) {
            throw H2OCacheError.otherBudgetsFormat(found: found, known: known, file: file)
        }
    }

    private init(_ refusal: MLXFast.H2OError) {
        if refusal.number != nil {
            self = .archive(refusal)
            return
        }
        if let problem = ConfigurationProblem(refusal) {
            self = .invalidConfiguration(problem)
            return
        }
        if refusal.code == "other_state_format" {
            self = .otherFormat(
                found: refusal.text("found"),
                known: refusal.text("known").components(separatedBy: ", "))
            return
        }
        let message = H2OErrorText.ofCore(refusal.code) {
            String(refusal.values[$0, default: ""].prefix(80))
        }
        self = .damaged(reason: message?.what ?? "\(refusal.code) \(refusal.values)")
    }
}
