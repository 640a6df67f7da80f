#if canImport(UIKit)
    import UIKit
#endif

extension BackgroundGuard {
    /// The guard of this process. Where UIKit is, it follows the app's life; elsewhere
    /// the background allows work on the GPU, and it stays open.
    public static let system: BackgroundGuard = {
        let system = BackgroundGuard()
        #if canImport(UIKit)
            system.follow(
                background: UIApplication.didEnterBackgroundNotification,
                foreground: UIApplication.willEnterForegroundNotification)
        #endif
        return system
    }()
}
