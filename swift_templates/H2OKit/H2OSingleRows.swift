import Foundation
import MLX

/// All rows in one buffer and one format: as they come, or quantized.
struct H2OSingleRows: H2ORows {
    /// Its dtype is that of the first keys.
    private(set) var format: MLXFast.H2ORowFormat

    /// `[B, Hkv, capacity, Dk + Dv]`, or uint32 `[B, Hkv, capacity, words]`.
    private var buffer: MLXArray?

    static let canBeTrimmed = true
    static let savedArrays = 1

    init(_ format: MLXFast.H2ORowFormat) {
        self.format = format
    }

    var buffers: [MLXArray] { buffer.map { [$0] } ?? [] }

    mutating func write(
        keys: MLXArray, values: MLXArray, victim: MLXArray, step: H2OStep,
        policy: MLXFast.H2OPolicy, copy: Bool
    ) {
        if buffer == nil { format.dtype = keys.dtype }
        buffer = MLXFast.h2oCacheWrite(
            rows: buffer, keys: keys, values: values, victim: victim, length: step.length,
            policy: policy, format: format, copy: copy)
    }

    mutating func attend(
        _ attention: H2OAttention, ledger: MLXFast.H2OLedger, step: H2OStep,
        policy: MLXFast.H2OPolicy
    ) -> (output: MLXArray?, ledger: MLXFast.H2OLedger) {
        let attended = MLXFast.h2oCacheAttend(
            queries: attention.queries, rows: buffer ?? .mlxNone, ledger: ledger,
            tokens: step.tokens, offset: step.offset, length: step.length,
            scale: attention.scale, mask: attention.mask, policy: policy, format: format)
        buffer = attended.rows
        return (attended.output, attended.ledger)
    }

    func fetch(
        after step: H2OStep, keyDim: Int, policy: MLXFast.H2OPolicy
    ) -> (MLXArray, MLXArray) {
        MLXFast.h2oCacheFetch(
            rows: buffer ?? .mlxNone, length: step.lengthAfter(policy.maxSize), keyDim: keyDim,
            policy: policy, format: format)
    }

    func trimmed(
        _ ledger: MLXFast.H2OLedger, to length: Int, policy: MLXFast.H2OPolicy
    ) -> MLXFast.H2OLedger {
        MLXFast.h2oLedgerTrim(
            ledger, rows: buffer ?? .mlxNone, length: length, policy: policy, format: format)
    }

    func saved(length: Int) -> [MLXArray] {
        buffers.map { $0[.ellipsis, ..<length, 0...] }
    }

    mutating func restore(_ arrays: [MLXArray]?) {
        buffer = arrays?.first
    }

    func fits(offset: Int, pending: Int, length: Int, policy: MLXFast.H2OPolicy) -> Bool {
        (buffer?.dim(2) ?? 0) == length
    }

    var description: String? {
        format.keyBits == 16 ? nil : json(SavedFormat(format))
    }

    mutating func restore(description: String?) throws {
        guard format.keyBits != 16 else { return }
        let saved = try decode(SavedFormat.self, description)
        try H2OStorage.check(
            [("key_bits", saved.keyBits), ("value_bits", saved.valueBits)], [4, 8])
        try H2OStorage.check(groupSize: saved.groupSize)
        format = MLXFast.H2ORowFormat(
            keyBits: saved.keyBits, valueBits: saved.valueBits, groupSize: saved.groupSize,
            dtype: saved.dtype.value)
    }

    private struct SavedFormat: Codable {
        let keyBits: Int
        let valueBits: Int
        let groupSize: Int
        let dtype: SavedDType

        init(_ format: MLXFast.H2ORowFormat) {
            keyBits = format.keyBits
            valueBits = format.valueBits
            groupSize = format.groupSize
            dtype = SavedDType(format.dtype)
        }

        private enum CodingKeys: String, CodingKey {
            case keyBits = "key_bits"
            case valueBits = "value_bits"
            case groupSize = "group_size"
            case dtype
        }
    }
}
