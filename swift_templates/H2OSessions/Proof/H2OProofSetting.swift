import Foundation

/// What a package was planned for, beside which ``H2OProof`` puts what a device shows.
public struct H2OProofSetting: Sendable {
    /// Bytes that the model takes on one kind of device.
    public struct Plan: Sendable {
        /// By the name of what takes them; empty where the report's reader could not plan the
        /// same from the setting.
        public let terms: [String: Int]
        /// The most that MLX counts.
        public let mlx: Int
        /// The most of the whole app.
        public let total: Int

        public init(terms: [String: Int], mlx: Int, total: Int) {
            self.terms = terms
            self.mlx = mlx
            self.total = total
        }
    }

    /// Where the model came from, as its manifest says.
    public let id: String
    /// The model's name in `h2o-pack`.
    public let model: String
    /// Rows that a layer keeps.
    public let maxKV: Int
    /// How rows are stored, in `h2o-pack`'s words.
    public let kv: String
    /// Tokens of the conversation that was planned.
    public let context: Int
    /// Tokens of a prompt that the model reads at once.
    public let prefillStep: Int
    /// Of `h2o-pack` and of what the package stands on.
    public let versions: [String: String]
    public let phone: Plan
    public let tablet: Plan
    /// What Python's caches answered with this package's settings, and fewer rows.
    public let trace: URL?

    public init(
        id: String, model: String, maxKV: Int, kv: String, context: Int, prefillStep: Int,
        versions: [String: String], phone: Plan, tablet: Plan, trace: URL? = nil
    ) {
        self.id = id
        self.model = model
        self.maxKV = maxKV
        self.kv = kv
        self.context = context
        self.prefillStep = prefillStep
        self.versions = versions
        self.phone = phone
        self.tablet = tablet
        self.trace = trace
    }
}
