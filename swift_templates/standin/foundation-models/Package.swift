// swift-tools-version: 6.1
// Stands in for Apple's FoundationModels of iOS 27 on Linux, where there is none: the
// declarations that H2OFoundationModels and its tests use, from Apple's documentation, and a
// LanguageModelSession that calls an executor as that documentation says.

import PackageDescription

let package = Package(
    name: "foundation-models",
    products: [.library(name: "FoundationModels", targets: ["FoundationModels"])],
    targets: [
        .target(
            name: "FoundationModels",
            swiftSettings: [
                // As Apple's: version 2 has models of others, and enums that may grow. The one
                // warning is that Foundation's may not, on Linux.
                .unsafeFlags([
                    "-user-module-version", "2.0", "-enable-library-evolution",
                    "-suppress-warnings",
                ])
            ])
    ],
    swiftLanguageModes: [.v6]
)
