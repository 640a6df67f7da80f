// swift-tools-version: 6.0
// The tokenizers of swift-transformers with another module name, because an app may already contain
// its module Tokenizers. SwiftPM shares its dependencies with the app.

import PackageDescription

let package = Package(
    name: "h2o-tokenizers",
    platforms: [.iOS(.v17), .macOS(.v14)],
    products: [.library(name: "H2OTokenizers", targets: ["H2OTokenizers"])],
    dependencies: [
        .package(url: "https://github.com/huggingface/swift-jinja.git", from: "2.4.2"),
        .package(url: "https://github.com/ibireme/yyjson.git", "0.12.0"..<"1.0.0"),
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
