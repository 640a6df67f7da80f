import MLXLMCommon

extension KVCache {
    /// The caches of a layer's list, or this one alone.
    package var leaves: [any KVCache] {
        guard let list = self as? CacheList else { return [self] }
        var leaves = [any KVCache]()
        list.mapChildren { child in
            leaves.append(child)
            return child
        }
        return leaves
    }
}
