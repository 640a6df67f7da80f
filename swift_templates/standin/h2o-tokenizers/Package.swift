// swift-tools-version: 6.1
// A stand-in for the tokenizers of swift-transformers, for builds without its sources. It has no
// tokenizers.

import PackageDescription

let package = Package(
    name: "h2o-tokenizers",
    platforms: [.macOS(.v14), .iOS(.v17)],
    products: [.library(name: "H2OTokenizers", targets: ["H2OTokenizers"])],
    targets: [.target(name: "H2OTokenizers")]
)
