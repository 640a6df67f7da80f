// swift-tools-version: 6.0
// The tokenizers of swift-transformers with another module name, because an app may already contain
// its module Tokenizers. Its dependencies are in Vendor too.

import PackageDescription

let package = Package(
    name: "h2o-tokenizers",
    platforms: [.iOS(.v17), .macOS(.v14)],
    products: [.library(name: "H2OTokenizers", targets: ["H2OTokenizers"])],
    dependencies: [
        .package(path: "../swift-jinja"),
        .package(path: "../yyjson"),
    ],
    targets: [
        .target(
            name: "H2OTokenizers",
            dependencies: [
                .product(name: "Jinja", package: "swift-jinja"),
                .product(name: "yyjson", package: "yyjson"),
            ],
            path: "Sources")
    ],
    swiftLanguageModes: [.v5]
)
