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
    /// The cache is empty, or its kind cannot be saved; `found` describes it.
    case notSavable(index: Int, found: String)
    /// An archive in files is missing, belongs to another cache, or cannot be read or written.
    case archive(MLXFast.H2OArchiveFailure)
}

extension H2OCacheError {
    public var errorDescription: String? {
        switch self {
        case .invalidConfiguration(let problem, let layer):
            (layer.map { "layers[\($0)] of the H2O budgets: " } ?? "") + problem.text
        case .layerKeepsOwnCache(let layer, let setting, let model, let evicting):
            "\(setting) names layer \(layer), but in \(model) only these layers have H2O caches: "
                + "\(evicting.map(String.init).joined(separator: ", ")). Name some of them, or "
                + "write null for layer \(layer) in a list of all layers."
        case .wrongLayerCount(let found, let expected, let model):
            "The H2O budgets have \(found) entries; \(model) has \(expected) caches. Write one "
                + "entry per cache, null for the common budgets."
        case .unfitModel(let model, let reason):
            "\(model) cannot use an H2O cache: \(reason). Generate without H2O, or choose another "
                + "model."
        case .excludedOption(let parameter):
            "\(parameter) cannot be used with H2O caches: an H2O configuration bounds the cache "
                + "by maxSize, and its storage says how rows are quantized. Leave \(parameter) nil."
        case .otherFormat(let found, let known, let file):
            "\(file?.path ?? "The saved cache") has the format \"\(found)\"; this release reads "
                + known.map { "\"\($0)\"" }.joined(separator: ", ")
                + ". Make it again with this release."
        case .damaged(let reason, let file):
            "\(file?.path ?? "The saved cache") is damaged: \(reason). Use an earlier copy, or "
                + "start again."
        case .otherModel(let found, let expected, let file):
            "\(file.path) belongs to the model \(found), but this is \(expected). Use the model "
                + "that it was made with, or start again."
        case .otherSettings(let found, let expected, let file):
            "The caches in \(file.path) have the settings \(found), but the caches here have "
                + "\(expected). Use the same settings, or start again."
        case .otherTemplate(let file):
            "\(file.path) was made with another chat template. Use the tokenizer that it was "
                + "made with, or start again."
        case .notSavable(let index, let found):
            "Cache \(index) is \(found), which cannot be saved. Save the caches of a model that "
                + "has read a prompt."
        case .archive(let failure):
            failure.text
        }
    }
}

extension MLXFast.H2OArchiveFailure {
    fileprivate var text: String {
        let reason = error == 0 ? "" : " (\(String(cString: strerror(error))))"
        return switch problem {
        case .locked: "The archive \(path) is open in another cache, in this process or another."
        case .notEmpty: "\(path) holds the archive of another conversation."
        case .other: "The archive \(path) does not belong to the saved cache."
        case .tooShort: "The archive \(path) ends before the saved cache does."
        case .damaged: "\(path) is missing or was changed after it was written\(reason)."
        case .unusable: "\(path) cannot hold an archive\(reason)."
        case .notWritten: "\(path) cannot be written\(reason)."
        case .notRead: "\(path) cannot be read\(reason)."
        case .tooSlow: "The disk of \(path) is too slow for the tokens that arrive."
        case .forked: "\(path) belongs to the parent of this forked process."
        case .notGiven: "The saved cache has an archive in files, but its folder was not given."
        }
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
        }
    }

    private init(_ refusal: MLXFast.H2OError) {
        if let failure = MLXFast.H2OArchiveFailure(refusal) {
            self = .archive(failure)
            return
        }
        let values = refusal.values.mapValues { $0.prefix(80) }
        func value(_ name: String) -> Substring { values[name] ?? "" }
        let reason =
            switch refusal.code {
            case "other_state":
                "the state has \(value("found")) arrays; \(value("kind")) has \(value("names"))"
            case "damaged_header":
                "its \(value("part")) is \(value("found")); it must be \(value("allowed"))"
            case "damaged_shape":
                "its \(value("part")) has shape \(value("shape")) and dtype \(value("dtype")); the "
                    + "rest of it needs \(value("allowed"))"
            case "damaged_positions":
                "its \(value("part")) do not list each of its tokens exactly once"
            case "damaged_victim":
                "its \(value("part")), the next row to evict, is outside of its rows"
            case "damaged_numbers": "its \(value("part")) contains a number that no cache writes"
            default: "\(refusal.code) \(refusal.values)"
            }
        self = .damaged(reason: reason)
    }
}
