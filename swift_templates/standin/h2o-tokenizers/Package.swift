// swift-tools-version: 6.1
// Stands in for swift-tokenizers 0.1.0 where its sources cannot be had: byte-level BPE,
// which is what the bundled demo model has, and no chat templates.

import PackageDescription

let package = Package(
    name: "h2o-tokenizers",
    platforms: [.macOS(.v14), .iOS(.v17)],
    products: [.library(name: "H2OTokenizers", targets: ["H2OTokenizers"])],
    targets: [.target(name: "H2OTokenizers")]
)
