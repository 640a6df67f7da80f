/// Memory that is taken from the app, each page of it written to, until it is given back.
struct HeldMemory: ~Copyable {
    private var blocks = [UnsafeMutableRawPointer]()
    /// So far.
    private(set) var bytes = 0
    /// Apart by no more than the smallest page.
    private static let pageStride = 4096

    mutating func grow(by count: Int) {
        let block = UnsafeMutableRawPointer.allocate(byteCount: count, alignment: Self.pageStride)
        for offset in stride(from: 0, to: count, by: Self.pageStride) {
            block.storeBytes(of: UInt64(bytes + offset), toByteOffset: offset, as: UInt64.self)
        }
        blocks.append(block)
        bytes += count
    }

    deinit {
        for block in blocks { block.deallocate() }
    }
}
