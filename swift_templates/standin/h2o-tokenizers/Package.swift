// swift-tools-version: 6.1
// A stand-in for swift-tokenizers 0.1.0, for builds without its sources. It has byte-level BPE, which
// the bundled demo model uses, and no chat templates.

import PackageDescription

let package = Package(
    name: "h2o-tokenizers",
    platforms: [.macOS(.v14), .iOS(.v17)],
    products: [.library(name: "H2OTokenizers", targets: ["H2OTokenizers"])],
    targets: [.target(name: "H2OTokenizers")]
)
