// Stands in for the protocols of mlx-swift 0.31.6.

/// A thing made of arrays, which can be evaluated together.
public protocol Evaluatable {
    func innerState() -> [MLXArray]
}
