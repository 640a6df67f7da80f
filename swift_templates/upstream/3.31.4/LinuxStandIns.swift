import Foundation

/// What upstream's sources use of Apple's frameworks and Foundation on Linux lacks.
extension String {
    /// The text itself: there is no table of translations.
    package init(localized text: String) {
        self = text
    }
}

/// Takes log messages and keeps none of them.
struct Logger {
    init(subsystem: String, category: String) {}

    func info(_ message: @autoclosure () -> String) {}
}
