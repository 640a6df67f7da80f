// swift-tools-version: 6.0
// The program that `h2o-pack parity --level text` asks. It has the app's tokenizer, template
// engine, decoders of configurations, and the code between transcripts and tokens, without MLX.

import PackageDescription

let package = Package(
    name: "h2o-text",
    platforms: [.macOS(.v14)],
    dependencies: [.package(path: "Vendor/h2o-tokenizers")],
    targets: [
        .target(name: "MLXLMCommon", swiftSettings: [.swiftLanguageMode(.v5)]),
        .target(name: "H2OConfigurations", swiftSettings: [.swiftLanguageMode(.v5)]),
        .executableTarget(
            name: "h2o-text",
            dependencies: [
                "H2OConfigurations", "MLXLMCommon",
                .product(name: "H2OTokenizers", package: "h2o-tokenizers"),
            ]),
    ]
)
