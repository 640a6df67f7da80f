import Foundation
import MLXLMCommon

/// Receives a text in pieces, and ends it before the first stop string.
package struct StopStrings {
    private let strings: [String]
    /// Text that may be the beginning of a stop string.
    private var held = ""
    /// Whether a stop string has occurred.
    package private(set) var isFound = false

    package init(_ strings: some Sequence<String>) {
        self.strings = strings.filter { !$0.isEmpty }
    }

    /// Returns the new text that cannot belong to a stop string.
    package mutating func append(_ text: String) -> String {
        guard !isFound else { return "" }
        let all = held + text
        if let stop = strings.compactMap({ all.firstRange(ofMark: $0)?.lowerBound }).min() {
            isFound = true
            held = ""
            return String(all[..<stop])
        }
        let end = strings.map { all.beginning(ofMark: $0) }.min() ?? all.endIndex
        held = String(all[end...])
        return String(all[..<end])
    }

    /// Returns the text that was held back.
    package mutating func finish() -> String {
        defer { held = "" }
        return held
    }
}
