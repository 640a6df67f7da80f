import Foundation
import MLX

/// The strings that describe a saved cache.
struct H2OCacheMetadata: Hashable {
    /// The kind of cache and the version of its format, as in Python.
    static let format = "h2o.dense.1"

    let offset: Int
    let length: Int
    let pending: Int
    let configuration: H2OConfiguration

    init(_ storage: H2OCacheStorage) {
        offset = storage.offset
        length = storage.length
        pending = storage.pending
        configuration = storage.configuration
    }

    /// - Throws: ``H2OStateError``, `DecodingError`, ``H2OConfigurationError``
    init(_ fields: [String]) throws {
        guard fields.first == Self.format, fields.count == 5 else {
            throw H2OStateError.otherFormat(fields)
        }
        offset = try Self.count(fields[1], "offset")
        length = try Self.count(fields[2], "length")
        pending = try Self.count(fields[3], "pending")
        configuration = try JSONDecoder().decode(H2OConfiguration.self, from: Data(fields[4].utf8))
    }

    var fields: [String] {
        let encoder = JSONEncoder()
        encoder.outputFormatting = .sortedKeys
        do {
            let json = String(decoding: try encoder.encode(configuration), as: UTF8.self)
            return [Self.format, "\(offset)", "\(length)", "\(pending)", json]
        } catch {
            preconditionFailure("A configuration has only finite numbers, but: \(error)")
        }
    }

    private static func count(_ field: String, _ name: String) throws -> Int {
        guard let value = Int(field), value >= 0 else {
            throw H2OStateError.inconsistent("\(name) is \"\(field)\", not a count")
        }
        return value
    }
}

/// Why arrays or strings were refused as the state of a cache.
public enum H2OStateError: LocalizedError, Hashable, Sendable {
    /// The strings are those of another kind of cache or another version.
    case otherFormat([String])
    /// Arrays and strings do not describe one cache.
    case inconsistent(String)

    public var errorDescription: String? {
        switch self {
        case .otherFormat(let fields):
            "The saved cache's format is \"\(fields.first ?? "")\"; this version reads "
                + "\"\(H2OCacheMetadata.format)\". Make the cache again from its prompt."
        case .inconsistent(let what):
            "The saved H2OKVCache is damaged: \(what). Make the cache again from its prompt."
        }
    }
}

extension H2OCacheStorage {
    var metadata: H2OCacheMetadata { H2OCacheMetadata(self) }

    /// Rows in use, then the ledger's arrays; none while the cache is empty.
    mutating func save() -> [MLXArray] {
        guard let rows = share().first, let ledger else { return [] }
        return [rows[.ellipsis, ..<length, 0...]] + ledger.arrays
    }

    mutating func restore(_ saved: [MLXArray]) throws {
        guard !saved.isEmpty else {
            (rows, ledger) = (nil, nil)
            return
        }
        let heads = saved[0].shape.prefix(2)
        let fits =
            saved.map(\.ndim) == [4, 3, 3, 3, 3, 2]
            && saved.allSatisfy { $0.shape.prefix(2) == heads }
            && saved[1].shape == saved[2].shape && saved[1].shape == saved[3].shape
        guard fits else {
            throw H2OStateError.inconsistent("its arrays have the shapes \(saved.map(\.shape))")
        }
        (rows, ledger, isShared) = (saved[0], MLXFast.H2OLedger(arrays: saved.dropFirst()), true)
    }

    /// Takes over the metadata that goes with the arrays restored before.
    mutating func restore(_ fields: [String]) throws {
        let metadata = try H2OCacheMetadata(fields)
        configuration = metadata.configuration
        (offset, pending) = (metadata.offset, metadata.pending)
        let fits =
            pending <= offset && metadata.length == length && (rows?.dim(2) ?? 0) == length
            && (ledger?.scores.dim(2) ?? configuration.maxSize) == configuration.maxSize
        guard fits else {
            throw H2OStateError.inconsistent(
                "its rows \(rows?.shape ?? []) do not fit its metadata \(fields)")
        }
    }
}
