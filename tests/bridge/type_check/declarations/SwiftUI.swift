@_exported import AppleFoundation
@_exported import Observation
@_exported import UIKit

// MARK: Views

@MainActor @preconcurrency
public protocol View {
    associatedtype Body: View
    @ViewBuilder @MainActor @preconcurrency var body: Body { get }
}

@resultBuilder
public struct ViewBuilder {
    public static func buildExpression<Content: View>(_ content: Content) -> Content { content }
    public static func buildBlock() -> EmptyView { fatalError() }
    public static func buildBlock<Content: View>(_ content: Content) -> Content { content }
    @_disfavoredOverload
    public static func buildBlock<each Content: View>(
        _ content: repeat each Content
    ) -> TupleView<(repeat each Content)> { fatalError() }
    public static func buildIf<Content: View>(_ content: Content?) -> Content? { content }
    public static func buildEither<First: View, Second: View>(
        first: First
    ) -> ConditionalContent<First, Second> { fatalError() }
    public static func buildEither<First: View, Second: View>(
        second: Second
    ) -> ConditionalContent<First, Second> { fatalError() }
}

extension Never: View {
    public var body: Never { fatalError() }
}

/// A view of the system, which has no body.
public protocol Primitive: View where Body == Never {}
extension Primitive {
    public var body: Never { fatalError() }
}

extension Optional: View, Primitive where Wrapped: View { public typealias Body = Never }

public struct EmptyView: Primitive { public nonisolated init() {} }
public struct TupleView<Content>: Primitive {}
public struct ConditionalContent<First: View, Second: View>: Primitive {}

// MARK: State and environment

@propertyWrapper
public struct State<Value> {
    public init(wrappedValue: Value) {}
    public var wrappedValue: Value {
        get { fatalError() }
        nonmutating set {}
    }
    public var projectedValue: Binding<Value> { fatalError() }
}
extension State: Sendable where Value: Sendable {}

@propertyWrapper @dynamicMemberLookup
public struct Binding<Value> {
    @preconcurrency
    public init(
        @_inheritActorContext get: @escaping @isolated(any) @Sendable () -> Value,
        @_inheritActorContext set: @escaping @isolated(any) @Sendable (Value) -> Void
    ) {}
    public var wrappedValue: Value {
        get { fatalError() }
        nonmutating set {}
    }
    public var projectedValue: Binding<Value> { self }
    public subscript<Subject>(
        dynamicMember path: WritableKeyPath<Value, Subject>
    ) -> Binding<Subject> { fatalError() }
}
extension Binding: @unchecked Sendable where Value: Sendable {}

@propertyWrapper @dynamicMemberLookup
public struct Bindable<Value> {
    public init(wrappedValue: Value) where Value: AnyObject & Observable {}
    public var wrappedValue: Value {
        get { fatalError() }
        set {}
    }
    public var projectedValue: Bindable<Value> { self }
    public subscript<Subject>(
        dynamicMember path: ReferenceWritableKeyPath<Value, Subject>
    ) -> Binding<Subject> where Value: AnyObject { fatalError() }
}

@propertyWrapper
public struct Environment<Value> {
    public init(_ path: KeyPath<EnvironmentValues, Value>) {}
    public var wrappedValue: Value { fatalError() }
}
extension Environment: Sendable where Value: Sendable {}

public struct EnvironmentValues: Sendable {
    public var dismiss: DismissAction { fatalError() }
    public var openURL: OpenURLAction {
        get { fatalError() }
        set {}
    }
    public var scenePhase: ScenePhase {
        get { fatalError() }
        set {}
    }
}

public enum ScenePhase: Comparable, Sendable { case background, inactive, active }

@MainActor @preconcurrency
public struct DismissAction {
    public func callAsFunction() {}
}

@MainActor @preconcurrency
public struct OpenURLAction {
    public struct Result: Sendable {
        public static var handled: Result { fatalError() }
        public static var discarded: Result { fatalError() }
        public static var systemAction: Result { fatalError() }
    }

    public init(handler: @escaping (URL) -> Result) {}
    public func callAsFunction(_ url: URL) {}
}

// MARK: Apps and scenes

@MainActor @preconcurrency
public protocol App {
    associatedtype Body: Scene
    @SceneBuilder @MainActor @preconcurrency var body: Body { get }
    @MainActor @preconcurrency init()
}
extension App {
    @MainActor @preconcurrency public static func main() {}
}

@MainActor @preconcurrency
public protocol Scene {
    associatedtype Body: Scene
    @SceneBuilder @MainActor @preconcurrency var body: Body { get }
}
extension Never: Scene {}

@resultBuilder
public struct SceneBuilder {
    public static func buildBlock<Content: Scene>(_ content: Content) -> Content { content }
}

public struct WindowGroup<Content: View>: Scene {
    public nonisolated init(@ViewBuilder content: () -> Content) {}
    public var body: Never { fatalError() }
}

public struct BackgroundTask<Request, Response>: Sendable {}
extension BackgroundTask {
    public static func urlSession(_ identifier: String) -> BackgroundTask<Void, Void>
    where Request == Void, Response == Void { fatalError() }
}

extension Scene {
    public nonisolated func backgroundTask<D: Sendable, R: Sendable>(
        _ task: BackgroundTask<D, R>, action: @escaping @Sendable (D) async -> R
    ) -> some Scene { self }
}

// MARK: Text and images

public struct LocalizedStringKey: Equatable, ExpressibleByStringInterpolation {
    public init(_ value: String) {}
    public init(stringLiteral value: String) {}
    public init(stringInterpolation: StringInterpolation) {}

    public struct StringInterpolation: StringInterpolationProtocol {
        public init(literalCapacity: Int, interpolationCount: Int) {}
        public mutating func appendLiteral(_ literal: String) {}
        public mutating func appendInterpolation(_ string: String) {}
        public mutating func appendInterpolation(_ number: Int) {}
    }
}

public struct Text: Primitive, Equatable, Sendable {
    public struct DateStyle: Sendable {
        public static var relative: DateStyle { fatalError() }
    }

    public nonisolated init(verbatim content: String) {}
    @_disfavoredOverload
    public nonisolated init<S: StringProtocol>(_ content: S) {}
    public nonisolated init(
        _ key: LocalizedStringKey, tableName: String? = nil, bundle: Bundle? = nil,
        comment: StaticString? = nil
    ) {}
    public nonisolated init(_ attributedContent: AttributedString) {}
    public nonisolated init(_ date: Date, style: DateStyle) {}
    public nonisolated static func == (left: Text, right: Text) -> Bool { fatalError() }

    public nonisolated func bold(_ isActive: Bool) -> Text { self }
    public nonisolated func font(_ font: Font?) -> Text { self }
    public nonisolated func foregroundStyle<S: ShapeStyle>(_ style: S) -> Text { self }
    public nonisolated func monospacedDigit() -> Text { self }
}

public struct Font: Hashable, Sendable {
    public static var title3: Font { fatalError() }
    public static var headline: Font { fatalError() }
    public static var callout: Font { fatalError() }
    public static var caption: Font { fatalError() }
    public static var footnote: Font { fatalError() }
    public func bold() -> Font { self }
    public func monospaced() -> Font { self }
}

public struct Image: Primitive {
    public nonisolated init(systemName: String) {}
}

public struct Label<Title: View, Icon: View>: Primitive {}
extension Label where Title == Text, Icon == Image {
    public nonisolated init(_ key: LocalizedStringKey, systemImage: String) {}
    @_disfavoredOverload
    public nonisolated init<S: StringProtocol>(_ title: S, systemImage: String) {}
}

// MARK: Controls

public struct ButtonRole: Equatable, Sendable {
    public static var destructive: ButtonRole { fatalError() }
    public static var cancel: ButtonRole { fatalError() }
}

public struct Button<Label: View>: Primitive {
    @preconcurrency
    public init(action: @escaping @MainActor () -> Void, @ViewBuilder label: () -> Label) {}
}
extension Button where Label == Text {
    @preconcurrency
    public init(_ key: LocalizedStringKey, action: @escaping @MainActor () -> Void) {}
    @preconcurrency @_disfavoredOverload
    public init<S: StringProtocol>(_ title: S, action: @escaping @MainActor () -> Void) {}
    @preconcurrency
    public init(
        _ key: LocalizedStringKey, role: ButtonRole?, action: @escaping @MainActor () -> Void
    ) {}
}
extension Button where Label == SwiftUI.Label<Text, Image> {
    @preconcurrency
    public init(
        _ key: LocalizedStringKey, systemImage: String, action: @escaping @MainActor () -> Void
    ) {}
}

public struct Toggle<Label: View>: Primitive {}
extension Toggle where Label == Text {
    public init(_ key: LocalizedStringKey, isOn: Binding<Bool>) {}
}

public struct Menu<Label: View, Content: View>: Primitive {}
extension Menu where Label == SwiftUI.Label<Text, Image> {
    public nonisolated init(
        _ key: LocalizedStringKey, systemImage: String, @ViewBuilder content: () -> Content
    ) {}
}

public struct Picker<Label: View, Selection: Hashable, Content: View>: Primitive {}
extension Picker where Label == Text {
    public nonisolated init(
        _ key: LocalizedStringKey, selection: Binding<Selection>,
        @ViewBuilder content: () -> Content
    ) {}
}

public struct TextField<Label: View>: Primitive {}
extension TextField where Label == Text {
    public nonisolated init(_ key: LocalizedStringKey, text: Binding<String>, axis: Axis) {}
}

public struct Link<Label: View>: Primitive {}
extension Link where Label == Text {
    @_disfavoredOverload
    public nonisolated init<S: StringProtocol>(_ title: S, destination: URL) {}
}

public protocol Transferable: Sendable {}
extension String: Transferable {}
extension URL: Transferable {}

public struct ShareLink<Label: View>: Primitive {
    public nonisolated init<Item: Transferable>(
        item: Item, subject: Text? = nil, message: Text? = nil, @ViewBuilder label: () -> Label
    ) {}
}

public struct ProgressView<Label: View, CurrentValueLabel: View>: Primitive {
    public nonisolated init() where Label == EmptyView, CurrentValueLabel == EmptyView {}
    public nonisolated init(_ key: LocalizedStringKey)
    where Label == Text, CurrentValueLabel == EmptyView {}
    public nonisolated init<V: BinaryFloatingPoint>(
        _ key: LocalizedStringKey, value: V?, total: V = 1.0
    ) where Label == Text, CurrentValueLabel == EmptyView {}
    public nonisolated init<V: BinaryFloatingPoint>(
        value: V?, total: V = 1.0, @ViewBuilder label: () -> Label,
        @ViewBuilder currentValueLabel: () -> CurrentValueLabel
    ) {}
}

public struct DisclosureGroup<Label: View, Content: View>: Primitive {}
extension DisclosureGroup where Label == Text {
    public nonisolated init(
        _ key: LocalizedStringKey, isExpanded: Binding<Bool>,
        @ViewBuilder content: @escaping () -> Content
    ) {}
}

public struct LabeledContent<Label: View, Content: View>: Primitive {}
extension LabeledContent where Label == Text {
    @_disfavoredOverload
    public nonisolated init<S1: StringProtocol, S2: StringProtocol>(_ title: S1, value: S2)
    where Content == Text {}
}

public struct ContentUnavailableView<Label: View, Description: View, Actions: View>: Primitive {
    public nonisolated init(
        @ViewBuilder label: () -> Label,
        @ViewBuilder description: () -> Description = { EmptyView() },
        @ViewBuilder actions: () -> Actions = { EmptyView() }
    ) {}
}

// MARK: Layout

public enum Axis: Int8, Sendable {
    case horizontal, vertical

    public struct Set: OptionSet, Sendable {
        public let rawValue: Int8
        public init(rawValue: Int8) { fatalError() }
        public static var horizontal: Set { fatalError() }
        public static var vertical: Set { fatalError() }
    }
}

public struct Edge: Sendable {
    public struct Set: OptionSet, Sendable {
        public let rawValue: Int8
        public init(rawValue: Int8) { fatalError() }
        public static var horizontal: Set { fatalError() }
        public static var bottom: Set { fatalError() }
        public static var leading: Set { fatalError() }
        public static var all: Set { fatalError() }
    }
}

public enum HorizontalEdge: Int8, Sendable { case leading, trailing }
public enum VerticalEdge: Int8, Sendable { case top, bottom }

public struct HorizontalAlignment: Equatable, Sendable {
    public static var leading: HorizontalAlignment { fatalError() }
    public static var center: HorizontalAlignment { fatalError() }
}

public struct VerticalAlignment: Equatable, Sendable {
    public static var center: VerticalAlignment { fatalError() }
    public static var firstTextBaseline: VerticalAlignment { fatalError() }
}

public struct Alignment: Equatable, Sendable {
    public static var center: Alignment { fatalError() }
    public static var leading: Alignment { fatalError() }
    public static var trailing: Alignment { fatalError() }
}

public struct UnitPoint: Hashable, Sendable {
    public static var bottom: UnitPoint { fatalError() }
}

public struct VStack<Content: View>: Primitive {
    public nonisolated init(
        alignment: HorizontalAlignment = .center, spacing: CGFloat? = nil,
        @ViewBuilder content: () -> Content
    ) {}
}

public struct LazyVStack<Content: View>: Primitive {
    public nonisolated init(
        alignment: HorizontalAlignment = .center, spacing: CGFloat? = nil,
        @ViewBuilder content: () -> Content
    ) {}
}

public struct HStack<Content: View>: Primitive {
    public nonisolated init(
        alignment: VerticalAlignment = .center, spacing: CGFloat? = nil,
        @ViewBuilder content: () -> Content
    ) {}
}

public struct Spacer: Primitive { public nonisolated init(minLength: CGFloat? = nil) {} }
public struct Divider: Primitive { public nonisolated init() {} }

public struct ScrollView<Content: View>: Primitive {
    public nonisolated init(
        _ axes: Axis.Set = .vertical, showsIndicators: Bool = true,
        @ViewBuilder content: () -> Content
    ) {}
}

public struct ForEach<Data: RandomAccessCollection, ID: Hashable, Content: View>: Primitive {
    public nonisolated init(
        _ data: Data, @ViewBuilder content: @escaping (Data.Element) -> Content
    ) where Data.Element: Identifiable, ID == Data.Element.ID {}
    public nonisolated init(
        _ data: Data, id: KeyPath<Data.Element, ID>,
        @ViewBuilder content: @escaping (Data.Element) -> Content
    ) {}
}

public struct List<Content: View>: Primitive {
    public nonisolated init(@ViewBuilder content: () -> Content) {}
    public nonisolated init<Data: RandomAccessCollection, Row: View>(
        _ data: Data, @ViewBuilder rowContent: @escaping (Data.Element) -> Row
    ) where Content == ForEach<Data, Data.Element.ID, Row>, Data.Element: Identifiable {}
}

public struct Form<Content: View>: Primitive {
    public nonisolated init(@ViewBuilder content: () -> Content) {}
}

public struct Section<Parent: View, Content: View, Footer: View>: Primitive {
    public nonisolated init(@ViewBuilder content: () -> Content)
    where Parent == EmptyView, Footer == EmptyView {}
}

public struct NavigationStack<Root: View>: Primitive {
    public nonisolated init(@ViewBuilder root: () -> Root) {}
}

public struct NavigationLink<Label: View, Destination: View>: Primitive {
    public nonisolated init(
        @ViewBuilder destination: () -> Destination, @ViewBuilder label: () -> Label
    ) {}
}

// MARK: Toolbars

@MainActor @preconcurrency
public protocol ToolbarContent {
    associatedtype Body: ToolbarContent
    @ToolbarContentBuilder @MainActor @preconcurrency var body: Body { get }
}
extension Never: ToolbarContent {}

@resultBuilder
public struct ToolbarContentBuilder {
    public static func buildExpression<Content: ToolbarContent>(_ content: Content) -> Content {
        content
    }
    public static func buildBlock<Content: ToolbarContent>(_ content: Content) -> Content {
        content
    }
    @_disfavoredOverload
    public static func buildBlock<each Content: ToolbarContent>(
        _ content: repeat each Content
    ) -> some ToolbarContent { ToolbarItem { EmptyView() } }
}

public struct ToolbarItem<Content: View>: ToolbarContent {
    public nonisolated init(
        placement: ToolbarItemPlacement = .automatic, @ViewBuilder content: () -> Content
    ) {}
    public var body: Never { fatalError() }
}

public struct ToolbarItemPlacement: Sendable {
    public static var automatic: ToolbarItemPlacement { fatalError() }
    public static var confirmationAction: ToolbarItemPlacement { fatalError() }
    public static var primaryAction: ToolbarItemPlacement { fatalError() }
    public static var topBarLeading: ToolbarItemPlacement { fatalError() }
    public static var topBarTrailing: ToolbarItemPlacement { fatalError() }
}

// MARK: Styles

public protocol ShapeStyle: Sendable {}
extension ShapeStyle {
    public func opacity(_ opacity: Double) -> some ShapeStyle { self }
}

public struct Color: Primitive, ShapeStyle, Hashable {
    public static var accentColor: Color { fatalError() }
    public static var gray: Color { fatalError() }
    public static var red: Color { fatalError() }
    public nonisolated func opacity(_ opacity: Double) -> Color { self }
}
extension ShapeStyle where Self == Color {
    public static var gray: Color { fatalError() }
    public static var red: Color { fatalError() }
}

public struct HierarchicalShapeStyle: ShapeStyle {}
extension ShapeStyle where Self == HierarchicalShapeStyle {
    public static var secondary: HierarchicalShapeStyle { fatalError() }
}

public struct Material: ShapeStyle {}
extension ShapeStyle where Self == Material {
    public static var bar: Material { fatalError() }
}

public protocol Shape: Sendable, View {}
public struct RoundedRectangle: Shape, Primitive {}
extension Shape where Self == RoundedRectangle {
    public static func rect(cornerRadius: CGFloat) -> Self { fatalError() }
}

@MainActor @preconcurrency public protocol PrimitiveButtonStyle {}
public struct BorderedButtonStyle: PrimitiveButtonStyle { public nonisolated init() {} }
extension PrimitiveButtonStyle where Self == BorderedButtonStyle {
    @MainActor @preconcurrency public static var bordered: Self { Self() }
}

public struct BorderedProminentButtonStyle: PrimitiveButtonStyle { public nonisolated init() {} }
extension PrimitiveButtonStyle where Self == BorderedProminentButtonStyle {
    @MainActor @preconcurrency public static var borderedProminent: Self { Self() }
}

@MainActor @preconcurrency public protocol TextFieldStyle {}
public struct RoundedBorderTextFieldStyle: TextFieldStyle { public nonisolated init() {} }
extension TextFieldStyle where Self == RoundedBorderTextFieldStyle {
    @MainActor @preconcurrency public static var roundedBorder: Self { Self() }
}

@MainActor @preconcurrency public protocol LabelStyle {}
public struct IconOnlyLabelStyle: LabelStyle { public nonisolated init() {} }
extension LabelStyle where Self == IconOnlyLabelStyle {
    @MainActor @preconcurrency public static var iconOnly: Self { Self() }
}

public protocol TextSelectability {}
public struct EnabledTextSelectability: TextSelectability {}
extension TextSelectability where Self == EnabledTextSelectability {
    public static var enabled: Self { fatalError() }
}

public struct AccessibilityChildBehavior: Hashable, Sendable {
    public static var contain: Self { fatalError() }
    public static var ignore: Self { fatalError() }
}

public struct ScrollDismissesKeyboardMode: Sendable {
    public static var interactively: Self { fatalError() }
}

public struct NavigationBarItem: Sendable {
    public enum TitleDisplayMode: Sendable { case automatic, inline, large }
}

// MARK: Modifiers

extension View {
    // Layout and drawing
    public nonisolated func padding(
        _ edges: Edge.Set = .all, _ length: CGFloat? = nil
    ) -> some View { EmptyView() }
    public nonisolated func padding(_ length: CGFloat) -> some View { EmptyView() }
    public nonisolated func frame(
        minWidth: CGFloat? = nil, idealWidth: CGFloat? = nil, maxWidth: CGFloat? = nil,
        minHeight: CGFloat? = nil, idealHeight: CGFloat? = nil, maxHeight: CGFloat? = nil,
        alignment: Alignment = .center
    ) -> some View { EmptyView() }
    public nonisolated func overlay<V: View>(
        alignment: Alignment = .center, @ViewBuilder content: () -> V
    ) -> some View { EmptyView() }
    public nonisolated func safeAreaInset<V: View>(
        edge: VerticalEdge, alignment: HorizontalAlignment = .center, spacing: CGFloat? = nil,
        @ViewBuilder content: () -> V
    ) -> some View { EmptyView() }
    public nonisolated func background<S: ShapeStyle>(
        _ style: S, ignoresSafeAreaEdges edges: Edge.Set = .all
    ) -> some View { EmptyView() }
    public nonisolated func background<S: ShapeStyle, T: Shape>(
        _ style: S, in shape: T
    ) -> some View { EmptyView() }
    public nonisolated func foregroundStyle<S: ShapeStyle>(_ style: S) -> some View { EmptyView() }

    // Text
    public nonisolated func font(_ font: Font?) -> some View { EmptyView() }
    public nonisolated func lineLimit(_ number: Int?) -> some View { EmptyView() }
    public nonisolated func lineLimit(_ limit: ClosedRange<Int>) -> some View { EmptyView() }
    public nonisolated func monospacedDigit() -> some View { EmptyView() }
    public nonisolated func textSelection<S: TextSelectability>(
        _ selectability: S
    ) -> some View { EmptyView() }

    // Controls
    public nonisolated func disabled(_ disabled: Bool) -> some View { EmptyView() }
    public nonisolated func tag<V: Hashable>(_ tag: V) -> some View { EmptyView() }
    public nonisolated func buttonStyle<S: PrimitiveButtonStyle>(
        _ style: S
    ) -> some View { EmptyView() }
    public nonisolated func labelStyle<S: LabelStyle>(_ style: S) -> some View { EmptyView() }
    public nonisolated func textFieldStyle<S: TextFieldStyle>(
        _ style: S
    ) -> some View { EmptyView() }
    public nonisolated func contextMenu<Items: View>(
        @ViewBuilder menuItems: () -> Items
    ) -> some View { EmptyView() }
    public nonisolated func swipeActions<V: View>(
        edge: HorizontalEdge = .trailing, allowsFullSwipe: Bool = true,
        @ViewBuilder content: () -> V
    ) -> some View { EmptyView() }

    // Scrolling and navigation
    public nonisolated func defaultScrollAnchor(_ anchor: UnitPoint?) -> some View { EmptyView() }
    public nonisolated func scrollDismissesKeyboard(
        _ mode: ScrollDismissesKeyboardMode
    ) -> some View { EmptyView() }
    public nonisolated func navigationTitle(_ key: LocalizedStringKey) -> some View { EmptyView() }
    @_disfavoredOverload
    public nonisolated func navigationTitle<S: StringProtocol>(
        _ title: S
    ) -> some View { EmptyView() }
    public nonisolated func navigationBarTitleDisplayMode(
        _ mode: NavigationBarItem.TitleDisplayMode
    ) -> some View { EmptyView() }
    public nonisolated func toolbar<Content: ToolbarContent>(
        @ToolbarContentBuilder content: () -> Content
    ) -> some View { EmptyView() }

    // Presentation
    public nonisolated func sheet<Content: View>(
        isPresented: Binding<Bool>, onDismiss: (() -> Void)? = nil,
        @ViewBuilder content: @escaping () -> Content
    ) -> some View { EmptyView() }
    public nonisolated func alert<A: View, M: View, T>(
        _ key: LocalizedStringKey, isPresented: Binding<Bool>, presenting data: T?,
        @ViewBuilder actions: (T) -> A, @ViewBuilder message: (T) -> M
    ) -> some View { EmptyView() }

    // Accessibility
    public nonisolated func accessibilityElement(
        children: AccessibilityChildBehavior = .ignore
    ) -> some View { EmptyView() }
    public nonisolated func accessibilityLabel(
        _ key: LocalizedStringKey
    ) -> some View { EmptyView() }
    public nonisolated func accessibilityActions<Content: View>(
        @ViewBuilder _ content: () -> Content
    ) -> some View { EmptyView() }

    // Environment and events
    public nonisolated func environment<V>(
        _ path: WritableKeyPath<EnvironmentValues, V>, _ value: V
    ) -> some View { EmptyView() }
    public nonisolated func onChange<V: Equatable>(
        of value: V, initial: Bool = false, _ action: @escaping () -> Void
    ) -> some View { EmptyView() }
    public nonisolated func task(
        priority: TaskPriority = .userInitiated,
        @_inheritActorContext _ action: @escaping @isolated(any) @Sendable () async -> Void
    ) -> some View { EmptyView() }
}
