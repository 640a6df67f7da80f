// What Foundation has on Apple's systems and not on Linux. Other modules export it.

@_exported import Foundation

extension URL {
    public static var applicationSupportDirectory: URL { fatalError() }
}

extension AttributedString {
    public struct MarkdownParsingOptions: Sendable {
        public enum InterpretedSyntax: Sendable {
            case full, inlineOnly, inlineOnlyPreservingWhitespace
        }

        public enum FailurePolicy: Sendable { case throwError, returnPartiallyParsedIfPossible }

        public init(
            allowsExtendedAttributes: Bool = false, interpretedSyntax: InterpretedSyntax = .full,
            failurePolicy: FailurePolicy = .throwError, languageCode: String? = nil
        ) {}
    }

    public init(
        markdown: String, options: MarkdownParsingOptions = MarkdownParsingOptions(),
        baseURL: URL? = nil
    ) throws { fatalError() }
}

public struct PresentationIntent: Hashable, Sendable {
    public enum Kind: Hashable, Sendable {
        case paragraph, orderedList, unorderedList, blockQuote, thematicBreak, tableHeaderRow
        case header(level: Int)
        case listItem(ordinal: Int)
        case codeBlock(languageHint: String?)
        case table(columns: [Int])
        case tableRow(rowIndex: Int)
        case tableCell(columnIndex: Int)
    }

    public struct IntentType: Hashable, Sendable {
        public var kind: Kind
        public var identity: Int
    }

    public var components: [IntentType]
}

public struct PresentationAttributes: AttributeScope {
    public enum PresentationIntentAttribute: AttributedStringKey {
        public typealias Value = PresentationIntent
        public static let name = "PresentationIntent"
    }

    public let presentationIntent: PresentationIntentAttribute
}

extension AttributeDynamicLookup {
    public subscript<Key: AttributedStringKey>(
        dynamicMember path: KeyPath<PresentationAttributes, Key>
    ) -> Key { fatalError() }
}

public struct LocalizedStringResource: ExpressibleByStringInterpolation, Sendable {
    public init(stringLiteral value: String) {}
}
