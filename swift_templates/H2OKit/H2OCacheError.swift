import Foundation
import MLX

/// Why caches were not made, saved or read.
public enum H2OCacheError: LocalizedError, Hashable, Sendable {
    /// A setting cannot be used, alone or together with others. `layer` is the one whose budgets
    /// make it so; nil for what all layers have.
    case invalidConfiguration(ConfigurationProblem, layer: Int? = nil)
    /// A setting names a layer that evicts nothing in this model; `evicting` are those that do.
    case layerKeepsOwnCache(Int, setting: String, model: String, evicting: [Int])
    /// Budgets have one entry for each of the model's caches.
    case wrongLayerCount(found: Int, expected: Int, model: String)
    /// The model would compute something else with rows missing, or has no cache to bound.
    case unfitModel(String, reason: String)
    /// A parameter of generation that contradicts H2O caches.
    case excludedOption(String)

    /// What was saved is something else, or of another version. `known` is what is read here.
    case otherFormat(found: String, known: [String], file: URL? = nil)
    /// What was saved was cut short or changed.
    case damaged(reason: String, file: URL? = nil)
    /// The file belongs to another model. Both are the names of models.
    case otherModel(found: String, expected: String, file: URL)
    /// The file's caches had other settings. Both are JSON.
    case otherSettings(found: String, expected: String, file: URL)
    /// The file was made with another chat template.
    case otherTemplate(file: URL)
    /// An empty cache, or one of a kind that is not saved.
    case notSavable(index: Int, found: String)
    /// An archive in files is not there, not the cache's, or refused by the system.
    case archive(MLXFast.H2OArchiveFailure)
}
