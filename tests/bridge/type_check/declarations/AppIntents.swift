@_exported import AppleFoundation

public protocol AppIntent: Sendable {
    associatedtype PerformResult: IntentResult
    static var title: LocalizedStringResource { get }
    static var openAppWhenRun: Bool { get }
    static var supportedModes: IntentModes { get }
    init()
    func perform() async throws -> PerformResult
}
extension AppIntent {
    public typealias Parameter = IntentParameter
    public static var supportedModes: IntentModes { fatalError() }
}

public struct IntentModes: OptionSet, Sendable {
    public let rawValue: Int
    public init(rawValue: Int) { fatalError() }
    public static var foreground: IntentModes { fatalError() }
}

@propertyWrapper
public final class IntentParameter<Value: _IntentValue>: @unchecked Sendable {
    public init(title: LocalizedStringResource) {}
    public var wrappedValue: Value {
        get { fatalError() }
        set {}
    }
}

public protocol _IntentValue: Sendable {}
extension String: _IntentValue {}

public protocol IntentResult: Sendable {
    associatedtype Value
    associatedtype Dialog
}
public protocol ReturnsValue<Value>: IntentResult where Value: _IntentValue {}
public protocol ProvidesDialog: IntentResult where Dialog == IntentDialog {}

public struct IntentDialog: ExpressibleByStringInterpolation, Sendable {
    public init(stringLiteral value: String) {}
}

public struct IntentResultContainer<Value, OpensIntent, SnippetView, Dialog>: IntentResult {}
extension IntentResultContainer: ReturnsValue where Value: _IntentValue {}
extension IntentResultContainer: ProvidesDialog where Dialog == IntentDialog {}

extension IntentResult {
    public static func result<Value: _IntentValue>(value: Value, dialog: IntentDialog) -> Self
    where Self == IntentResultContainer<Value, Never, Never, IntentDialog> { fatalError() }
}
