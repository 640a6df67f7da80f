import BackgroundAssets

public protocol StoreDownloaderExtension: ManagedDownloaderExtension {}
