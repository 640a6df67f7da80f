import Foundation

/// Why a model gets no H2O caches.
public enum H2OCachesError: LocalizedError, Hashable, Sendable {
    /// The model would compute something else with rows missing.
    case unfit(model: String, reason: String)
    /// No layer of the model has a plain cache.
    case nothingToBound(model: String, caches: [String])
    /// A layer that is to recall rows has no H2O cache.
    case recallLayer(Int, model: String, known: [Int])
    /// A parameter of generation that contradicts H2O caches.
    case excludes(String)

    public var errorDescription: String? {
        switch self {
        case .unfit(let model, let reason):
            "\(model) cannot use an H2O cache: \(reason). Generate without H2O, or choose another "
                + "model."
        case .nothingToBound(let model, let caches):
            "\(model) has no layer with a plain KVCacheSimple (it uses "
                + "\(caches.isEmpty ? "no caches" : caches.joined(separator: ", "))), so there is "
                + "nothing for H2O to bound. Generate without H2O."
        case .recallLayer(let layer, let model, let known):
            "recall.layers names \(layer), but H2O caches are those of layers "
                + "\(known.map(String.init).joined(separator: ", ")) of \(model). Name some of "
                + "these, or leave layers nil."
        case .excludes(let parameter):
            "\(parameter) and H2O caches exclude each other: an H2O configuration bounds the cache "
                + "by maxSize, and its storage says how rows are quantized. Leave \(parameter) nil."
        }
    }
}
