// swift-tools-version: 6.1
// A stand-in for Apple's FoundationModels of iOS 27, for Linux. It has the declarations that
// H2OFoundationModels and its tests use, written from Apple's documentation, and a
// LanguageModelSession that calls an executor as the documentation describes.

import PackageDescription

let package = Package(
    name: "foundation-models",
    products: [.library(name: "FoundationModels", targets: ["FoundationModels"])],
    targets: [
        .target(
            name: "FoundationModels",
            swiftSettings: [
                // Like Apple's framework, version 2 accepts other models and has enums that may get
                // more cases. This gives one warning, because Foundation on Linux has no such enums.
                .unsafeFlags([
                    "-user-module-version", "2.0", "-enable-library-evolution",
                    "-suppress-warnings",
                ])
            ])
    ],
    swiftLanguageModes: [.v6]
)
