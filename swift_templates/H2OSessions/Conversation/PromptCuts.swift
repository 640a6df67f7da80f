/// How a prompt is cut into chunks.
///
/// Rows are evicted after each chunk, so other chunks leave other rows in the caches and give
/// another reply. The cuts depend only on the package and on the tokens: not on time, on memory or
/// on snapshots. `h2o_py/prompts.py` states the same rule for Python.
package struct PromptCuts: Sendable {
    /// The most tokens of a chunk.
    package let chunk: Int
    /// Positions at which a chunk ends: the ends of pinned ranges that begin at 0, and the place at
    /// which ``H2OSession/prewarm()`` stops.
    package var ends: [Int]
    /// The number of tokens at the end that are read one by one, after everything else.
    package var alone = 1

    package init(chunk: Int, ends: [Int] = [], alone: Int = 1) {
        (self.chunk, self.ends, self.alone) = (max(1, chunk), ends, alone)
    }

    /// Returns the number of tokens of each chunk. Without `ends` and with one token `alone`, these
    /// are the chunks of mlx-lm's `generate_step`.
    ///
    /// - Parameters:
    ///   - begin: the number of tokens that the caches have read
    ///   - end: the number of tokens of the whole prompt, at least `begin`
    package func lengths(from begin: Int, to end: Int) -> [Int] {
        let last = max(begin, end - alone)
        var (lengths, begin) = ([Int](), begin)
        for cut in ends.filter({ begin < $0 && $0 < last }).sorted() + [last] {
            let (whole, rest) = (cut - begin).quotientAndRemainder(dividingBy: chunk)
            lengths += Array(repeating: chunk, count: whole) + (rest > 0 ? [rest] : [])
            begin = cut
        }
        return lengths + Array(repeating: 1, count: end - last)
    }
}
