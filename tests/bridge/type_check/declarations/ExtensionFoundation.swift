public protocol AppExtension {
    @MainActor @preconcurrency init()
}

extension AppExtension {
    public static func main() throws {}
}
