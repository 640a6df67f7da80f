// Stands in for the error handling of mlx-swift 0.31.6: an error of MLX ends the
// process unless it happens inside `withError`.

import Cmlx
import Foundation

public enum MLXError: LocalizedError, Sendable, Equatable {
    case caught(String)

    public var errorDescription: String? {
        switch self {
        case .caught(let message): "MLX Error: \(message)"
        }
    }
}

/// Throws the first error that MLX reports while `body` runs.
public func withError<R>(_ body: () throws -> R) throws -> R {
    installErrorHandler()
    let box = FirstError()
    let result = try FirstError.$current.withValue(box, operation: body)
    if let message = box.message {
        throw MLXError.caught(message)
    }
    return result
}

/// Makes sure that MLX reports its errors here.
func installErrorHandler() {
    _ = errorHandlerInstalled
}

private let errorHandlerInstalled: Void = mlx_set_error_handler(
    { message, _ in
        FirstError.report(message.map { String(cString: $0) } ?? "MLX failed without a message")
    }, nil, nil)

private final class FirstError: @unchecked Sendable {
    @TaskLocal static var current: FirstError?

    private let lock = NSLock()
    private var first: String?

    var message: String? { lock.withLock { first } }

    static func report(_ message: String) {
        guard let current else { fatalError(message) }
        current.lock.withLock { current.first = current.first ?? message }
    }
}
