"""Files on disk: paths, downloads, writing, locks and digests."""
