import Foundation

/// Parts of Apple's frameworks and of Foundation that upstream's sources use and that Linux lacks.
extension String {
    /// Returns the text itself, because there are no translations.
    package init(localized text: String) {
        self = text
    }
}

/// Ignores log messages.
struct Logger {
    init(subsystem: String, category: String) {}

    func info(_ message: @autoclosure () -> String) {}
}
