// swift-tools-version: 6.0
// swift-tokenizers under a name that is not in an app already: swift-transformers has a
// module Tokenizers too. What it stands on is vendored too.

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
            path: "Sources/Tokenizers")
    ],
    swiftLanguageModes: [.v5]
)
