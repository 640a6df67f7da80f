import Foundation
import MLX

/// The header of a saved cache: the strings in a file besides the arrays. In order, they are the
/// kind of cache with the version of its format; the numbers of tokens seen, of rows in use, and of
/// tokens whose attention is outstanding; the configuration; the row format, except for dense rows;
/// and the archive, if the format ends in ``recalls``. Python writes the same strings.
struct SavedHeader {
    /// The end of the format's name for a cache with recall.
    static let recalls = "+recall"

    let offset: Int
    let length: Int
    let pending: Int
    let configuration: H2OConfiguration
    let format: MLXFast.H2ORowFormat
    /// The head dim of values (Dv) in the header of a mixed cache; nil for other caches.
    let valueDim: Int?
    /// The archive's part of the header; nil without recall.
    let archive: MLXFast.H2OSavedArchive?

    init(of cache: H2OKVCache) {
        let core = cache.core
        core.finish()
        let numbers = core.numbers
        (offset, length, pending) = (core.offset, core.length, core.waiting)
        configuration = cache.configuration
        var format = cache.format
        if numbers.valueDim > 0 { format.dtype = numbers.dtype }
        self.format = format
        valueDim = format.recentBits == nil ? nil : numbers.valueDim
        archive = core.savedArchive
    }

    /// - Parameters:
    ///   - fields: the saved strings; the core checks their numbers
    ///   - folder: the conversation's folder, for an archive in files; the folder that is named in
    ///     the header is never opened
    /// - Throws: ``H2OCacheError``
    init(_ fields: [String], archive folder: URL?) throws {
        let first = fields.first ?? ""
        let recalls = first.hasSuffix(Self.recalls)
        let name = recalls ? String(first.dropLast(Self.recalls.count)) : first
        let kinds = H2OKVCache.Kind.allCases
        guard let kind = kinds.first(where: { $0.format == name }) else {
            throw H2OCacheError.otherFormat(found: first, known: kinds.map(\.format))
        }
        guard fields.count == 5 + (kind == .dense ? 0 : 1) + (recalls ? 1 : 0) else {
            throw H2OCacheError.damaged(reason: "its header has \(fields.count) texts")
        }
        offset = try Self.count(fields[1], "offset")
        length = try Self.count(fields[2], "length")
        pending = try Self.count(fields[3], "pending")
        format = kind == .dense ? .dense : try SavedRowFormat(fields[5], of: kind).format
        valueDim = nil
        archive = recalls ? try decode(MLXFast.H2OSavedArchive.self, fields.last) : nil
        configuration = try decode(H2OConfiguration.self, fields[4]).archiving(
            in: folder, hasFiles: archive?.mark != nil)
    }

    var fields: [String] {
        let kind = H2OKVCache.Kind(format)
        var fields = [kind.format + (archive == nil ? "" : Self.recalls)]
        fields += [offset, length, pending].map(String.init)
        fields.append(json(configuration))
        if kind != .dense {
            fields.append(json(SavedRowFormat(format: format, valueDim: valueDim)))
        }
        return fields + (archive.map { [json($0)] } ?? [])
    }

    /// Restores the cache with these arrays. The core checks everything first.
    func restore(_ arrays: [MLXArray]) throws -> MLXFast.H2OLayerCache {
        try MLXFast.H2OLayerCache(
            restoring: arrays, offset: offset, length: length, pending: pending,
            policy: configuration.policy, format: format, archive: archive)
    }

    private static func count(_ field: String, _ name: String) throws -> Int {
        guard let value = Int(field) else {
            throw H2OCacheError.damaged(reason: "\(name) is \"\(field.prefix(80))\", not a count")
        }
        return value
    }
}

extension H2OConfiguration {
    /// Returns this configuration with its archive in the conversation's folder, or in the
    /// subfolder with the layer's name. An archive that was not in files is in memory.
    ///
    /// - Throws: ``H2OCacheError/archive(_:)`` if the archive is in files and no folder is given
    fileprivate func archiving(in folder: URL?, hasFiles: Bool) throws -> H2OConfiguration {
        guard hasFiles else { return try archiving(in: nil) }
        guard let folder else { throw H2OCacheError.archive(.init(.notGiven)) }
        let named = recall?.store?.split(separator: "/").last.map(String.init) ?? ""
        let isLayer = named.wholeMatch(of: /layer-[0-9]{3,9}/) != nil
        let own = isLayer ? folder.appending(path: named, directoryHint: .notDirectory) : folder
        return try archiving(in: own.path(percentEncoded: false))
    }

    /// Returns this configuration with its archive in a folder; nil for memory.
    func archiving(in store: String?) throws -> H2OConfiguration {
        guard let recall, recall.store != store else { return self }
        return try with(recall: recall.with(layers: recall.layers, store: .some(store)))
    }
}

/// How a saved cache stores its rows, in Python's names: `key_bits` and `value_bits` or, with a
/// ring, `heavy_bits`, `recent_bits` and `value_dim`. `rotated` is omitted if false: files
/// without it stay valid.
private struct SavedRowFormat {
    let format: MLXFast.H2ORowFormat
    let valueDim: Int?
}

extension SavedRowFormat: Codable {
    /// - Parameter text: the saved JSON
    /// - Throws: ``H2OCacheError``
    init(_ text: String, of kind: H2OKVCache.Kind) throws {
        self = try decode(SavedRowFormat.self, text)
        guard (format.recentBits != nil) == (kind == .mixed) else {
            throw H2OCacheError.damaged(reason: "its rows are those of another kind of cache")
        }
    }

    init(from decoder: any Decoder) throws {
        let saved = try decoder.container(keyedBy: CodingKeys.self)
        let recentBits = try saved.decodeIfPresent(Int.self, forKey: .recentBits)
        let hasRing = recentBits != nil
        format = MLXFast.H2ORowFormat(
            keyBits: try saved.decode(Int.self, forKey: hasRing ? .heavyBits : .keyBits),
            valueBits: try saved.decode(Int.self, forKey: hasRing ? .heavyBits : .valueBits),
            groupSize: try saved.decode(Int.self, forKey: .groupSize),
            dtype: try saved.decode(MLXFast.H2ODType.self, forKey: .dtype),
            recentBits: recentBits,
            isRotated: try !hasRing
                && saved.decodeIfPresent(Bool.self, forKey: .rotated) ?? false)
        valueDim = hasRing ? try saved.decode(Int.self, forKey: .valueDim) : nil
    }

    func encode(to encoder: any Encoder) throws {
        var saved = encoder.container(keyedBy: CodingKeys.self)
        if let recentBits = format.recentBits {
            try saved.encode(format.keyBits, forKey: .heavyBits)
            try saved.encode(recentBits, forKey: .recentBits)
            try saved.encode(valueDim, forKey: .valueDim)
        } else {
            try saved.encode(format.keyBits, forKey: .keyBits)
            try saved.encode(format.valueBits, forKey: .valueBits)
            if format.isRotated { try saved.encode(true, forKey: .rotated) }
        }
        try saved.encode(format.groupSize, forKey: .groupSize)
        try saved.encode(format.dtype, forKey: .dtype)
    }

    private enum CodingKeys: String, CodingKey {
        case keyBits = "key_bits"
        case valueBits = "value_bits"
        case heavyBits = "heavy_bits"
        case recentBits = "recent_bits"
        case groupSize = "group_size"
        case dtype
        case valueDim = "value_dim"
        case rotated
    }
}

/// Encodes a value as JSON with sorted keys.
package func json(_ value: some Encodable) -> String {
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
    do {
        return String(decoding: try encoder.encode(value), as: UTF8.self)
    } catch {
        preconditionFailure("A saved value must have only finite numbers: \(error)")
    }
}

/// - Throws: ``H2OCacheError/damaged(reason:file:)``
package func decode<Value: Decodable>(_ type: Value.Type, _ text: String?) throws -> Value {
    guard let text else {
        throw H2OCacheError.damaged(reason: "a text of its header is missing")
    }
    do {
        return try JSONDecoder().decode(type, from: Data(text.utf8))
    } catch is DecodingError {
        throw H2OCacheError.damaged(reason: "a text of its header is \(text.prefix(80))")
    }
}
