extension CacheList {
    /// The caches of a layer, in order, where their number is not known when this is compiled.
    public convenience init(members: [any KVCache]) {
        self.init(caches: members)
    }
}
