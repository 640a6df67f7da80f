import Cmlx

extension MLXFast {

    /// The settings that decide which rows a cache keeps and what recall reads. They have the same
    /// names as in files. The core fills in missing settings and refuses invalid ones.
    public final class H2OPolicy: @unchecked Sendable {
        /// The value of a setting; layers are lists of integers, and ranges are lists of bounds.
        public enum Setting: Sendable {
            case integer(Int)
            case text(String)
            case integers([Int])
        }

        private let ctx: mlx_h2o_policy

        /// - Parameter settings: the settings by their names; those of recall begin with `recall.`
        /// - Throws: ``H2OError``
        public init(_ settings: [String: Setting]) throws {
            var ctx = mlx_h2o_policy()
            mlx_h2o_policy_new(&ctx)
            self.ctx = ctx
            for (name, setting) in settings {
                switch setting {
                case .integer(let value): mlx_h2o_policy_set_integer(ctx, name, Int64(value))
                case .text(let value): mlx_h2o_policy_set_text(ctx, name, value)
                case .integers(let values):
                    mlx_h2o_policy_set_integers(ctx, name, values.map(Int64.init), values.count)
                }
            }
            try H2OError.throwing { mlx_h2o_policy_complete(ctx) }
        }

        /// Creates a policy from complete settings that were checked before.
        public convenience init(checked settings: [String: Setting]) {
            do {
                try self.init(settings)
            } catch {
                preconditionFailure("the core refused settings that it had accepted: \(error)")
            }
        }

        /// Takes over a complete policy of the core.
        init(owning ctx: mlx_h2o_policy) {
            self.ctx = ctx
        }

        deinit {
            mlx_h2o_policy_free(ctx)
        }

        /// The value of a setting; 0 if there is no such integer setting.
        public func integer(_ name: String) -> Int { Int(mlx_h2o_policy_integer(ctx, name)) }

        /// The value of a setting; empty if there is no such text setting.
        public func text(_ name: String) -> String {
            String(cString: mlx_h2o_policy_text(ctx, name))
        }

        /// The value of a setting; empty if there is no such list of ranges.
        public func ranges(_ name: String) -> [Range<Int>] {
            var bounds = [Int64](
                repeating: 0, count: mlx_h2o_policy_integers(nil, 0, ctx, name))
            _ = mlx_h2o_policy_integers(&bounds, bounds.count, ctx, name)
            return stride(from: 0, to: bounds.count, by: 2).map {
                Int(bounds[$0]) ..< Int(bounds[$0 + 1])
            }
        }

        /// Warnings about settings that work but give poor text.
        public var warnings: [H2OError] {
            var warnings = [H2OError]()
            while mlx_h2o_policy_warning(ctx, warnings.count), let warning = H2OError.last {
                warnings.append(warning)
            }
            return warnings
        }

        func withCPolicy<Result>(_ body: (mlx_h2o_policy) throws -> Result) rethrows -> Result {
            try withExtendedLifetime(self) { try body(ctx) }
        }
    }
}
