import BackgroundAssets
import ExtensionFoundation
import StoreKit

/// Lets the system fetch the model's asset pack when the app is installed or updated, also
/// while the app does not run. How it is fetched is the system's own implementation.
@main
struct Downloader: StoreDownloaderExtension {
    func shouldDownload(_ assetPack: AssetPack) -> Bool { true }
}
