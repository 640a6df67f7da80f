#if canImport(UIKit)
    import UIKit
#endif

extension BackgroundGuard {
    /// The guard of this process. With UIKit it follows the app's notifications. On other
    /// systems the GPU may work in the background, and the guard stays open.
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
