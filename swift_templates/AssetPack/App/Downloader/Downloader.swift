import BackgroundAssets
import ExtensionFoundation
import StoreKit

/// Lets the system download the model's asset pack when the app is installed or updated, even if
/// the app does not run. The system's default implementation does the download.
@main
struct Downloader: StoreDownloaderExtension {
    func shouldDownload(_ assetPack: AssetPack) -> Bool { true }
}
