import Foundation
import MLX

extension H2OCacheError {
    public var errorDescription: String? {
        switch self {
        case .invalidConfiguration(let problem, let layer):
            (layer.map { "layers[\($0)] of the H2O budgets: " } ?? "") + problem.text
        case .layerKeepsOwnCache(let layer, let setting, let model, let evicting):
            "\(setting) names layer \(layer) of \(model), which keeps its own cache: H2O caches "
                + "are those of layers \(evicting.map(String.init).joined(separator: ", ")). Take "
                + "it out, or write null in a list of all layers."
        case .wrongLayerCount(let found, let expected, let model):
            "The H2O budgets have \(found) entries; \(model) has \(expected) caches. Write one "
                + "entry for each, null for the common budgets."
        case .unfitModel(let model, let reason):
            "\(model) cannot use an H2O cache: \(reason). Generate without H2O, or choose another "
                + "model."
        case .excludedOption(let parameter):
            "\(parameter) and H2O caches exclude each other: an H2O configuration bounds the cache "
                + "by maxSize, and its storage says how rows are quantized. Leave \(parameter) nil."
        case .otherFormat(let found, let known, let file):
            "\(file?.path ?? "What was read") has the format \"\(found)\"; this release reads "
                + known.map { "\"\($0)\"" }.joined(separator: ", ")
                + ". Make it again with this release."
        case .damaged(let reason, let file):
            "\(file?.path ?? "The saved cache") is damaged: \(reason). Use an earlier copy, or "
                + "start again."
        case .otherModel(let found, let expected, let file):
            "\(file.path) belongs to the model \(found), and this is \(expected). Go on with the "
                + "model that it was made with, or start again."
        case .otherSettings(let found, let expected, let file):
            "The caches in \(file.path) had the settings \(found), and those here have "
                + "\(expected). Use the same settings, or start again."
        case .otherTemplate(let file):
            "\(file.path) was made with another chat template. Go on with the tokenizer that it "
                + "was made with, or start again."
        case .notSavable(let index, let found):
            "Cache \(index) is \(found), which is not saved. Save caches of a model that has read "
                + "a prompt."
        case .archive(let failure):
            failure.text
        }
    }
}

extension MLXFast.H2OArchiveFailure {
    fileprivate var text: String {
        let reason = error == 0 ? "" : ": \(String(cString: strerror(error)))"
        return switch problem {
        case .locked: "Another cache has the archive \(path) open."
        case .notEmpty: "\(path) holds the archive of another conversation."
        case .other: "The archive \(path) is not that of the saved cache."
        case .tooShort: "The archive \(path) ends before the saved cache does."
        case .damaged: "\(path) is missing or not as the archive wrote it\(reason)."
        case .unusable: "The archive \(path) cannot be used\(reason)."
        case .notWritten: "\(path) of the archive cannot be written\(reason)."
        case .notRead: "\(path) of the archive cannot be read\(reason)."
        case .tooSlow: "The disk of \(path) does not keep up with the tokens."
        case .forked: "\(path) belongs to the process that this one was forked from."
        }
    }
}
