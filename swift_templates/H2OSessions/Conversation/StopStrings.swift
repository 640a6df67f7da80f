/// Cuts a text that arrives in pieces before the first of some strings.
struct StopStrings {
    private let strings: [String]
    /// May be the begin of a stop string.
    private var held = ""
    /// Whether a stop string has come.
    private(set) var isFound = false

    init(_ strings: some Sequence<String>) {
        self.strings = strings.filter { !$0.isEmpty }
    }

    /// The part of the text so far that is certain and new.
    mutating func append(_ text: String) -> String {
        guard !isFound else { return "" }
        let all = held + text
        if let stop = strings.compactMap({ all.range(of: $0)?.lowerBound }).min() {
            isFound = true
            held = ""
            return String(all[..<stop])
        }
        let kept = strings.map { beginning(of: $0, in: all) }.max() ?? 0
        held = String(all.suffix(kept))
        return String(all.dropLast(kept))
    }

    /// What was held back.
    mutating func finish() -> String {
        defer { held = "" }
        return held
    }

    /// How many characters at the end of the text a string may begin with.
    private func beginning(of string: String, in text: String) -> Int {
        (1 ..< string.count).last { text.hasSuffix(string.prefix($0)) } ?? 0
    }
}
