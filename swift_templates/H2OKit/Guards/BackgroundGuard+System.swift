#if canImport(UIKit)
    import UIKit
#endif

extension BackgroundGuard {
    /// The guard of this process. With UIKit it is closed until the app is known to be in the
    /// foreground, as the system also starts apps in the background, and then follows the app's
    /// notifications. On other systems the GPU may work in the background, and the guard stays
    /// open.
    public static let system: BackgroundGuard = {
        #if canImport(UIKit)
            let system = BackgroundGuard(isClosed: true)
            system.follow(
                background: UIApplication.didEnterBackgroundNotification,
                foreground: UIApplication.willEnterForegroundNotification)
            Task { @MainActor in
                if UIApplication.shared.applicationState != .background { system.open() }
            }
            return system
        #else
            return BackgroundGuard()
        #endif
    }()
}
