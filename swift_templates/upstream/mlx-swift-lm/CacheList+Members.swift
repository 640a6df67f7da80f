extension CacheList {
    /// Creates a list of a layer's caches, in order, whose number is known only at run time.
    public convenience init(members: [any KVCache]) {
        self.init(caches: members)
    }
}
