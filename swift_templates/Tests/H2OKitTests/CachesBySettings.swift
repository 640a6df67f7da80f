import H2OKit

// Caches of one class with few of their settings.

extension H2OKVCache {
    convenience init(maxSize: Int, recentBudget: Int? = nil, sinkSize: Int = 4) throws {
        self.init(
            configuration: try H2OConfiguration(
                maxSize: maxSize, sinkSize: sinkSize, recentBudget: recentBudget))
    }
}

extension QuantizedH2OKVCache {
    convenience init(maxSize: Int, groupSize: Int = 64, bits: Int = 8) throws {
        try self.init(maxSize: maxSize, groupSize: groupSize, keyBits: bits, valueBits: bits)
    }

    convenience init(maxSize: Int, groupSize: Int = 64, keyBits: Int, valueBits: Int) throws {
        try self.init(
            configuration: H2OConfiguration(maxSize: maxSize), groupSize: groupSize,
            keyBits: keyBits, valueBits: valueBits)
    }
}

extension MixedH2OKVCache {
    convenience init(
        maxSize: Int, heavyBits: Int = 8, recentBits: Int = 16, groupSize: Int = 64
    ) throws {
        try self.init(
            configuration: H2OConfiguration(maxSize: maxSize), heavyBits: heavyBits,
            recentBits: recentBits, groupSize: groupSize)
    }
}
