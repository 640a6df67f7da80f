// swift-tools-version: 6.1
// A stand-in for mlx-swift-lm at the commit that packages use, for builds without its sources. It has
// the cache protocol, the attention function that calls a cache, the way in which generation makes
// caches, greedy generation, and the readers of thoughts and tool calls. It has no models and no
// grammar engine. On Linux it also depends on the stand-in for FoundationModels, so that targets that
// import FoundationModels with `canImport` find it.

import PackageDescription

let package = Package(
    name: "mlx-swift-lm",
    platforms: [.macOS(.v14), .iOS(.v17)],
    products: [
        .library(name: "MLXLMCommon", targets: ["MLXLMCommon"]),
        .library(name: "MLXLLM", targets: ["MLXLLM"]),
        .library(name: "MLXGuidedGeneration", targets: ["MLXGuidedGeneration"]),
    ],
    dependencies: [
        .package(path: "../mlx-swift"), .package(path: "../foundation-models"),
    ],
    targets: [
        .target(
            name: "MLXLMCommon",
            dependencies: [
                .product(name: "MLX", package: "mlx-swift"),
                .product(name: "MLXNN", package: "mlx-swift"),
                .product(
                    name: "FoundationModels", package: "foundation-models",
                    condition: .when(platforms: [.linux])),
            ],
            path: "Libraries/MLXLMCommon"),
        .target(
            name: "MLXGuidedGeneration",
            dependencies: ["MLXLMCommon", .product(name: "MLX", package: "mlx-swift")],
            path: "Libraries/MLXGuidedGeneration"),
        .target(name: "MLXLLM", dependencies: ["MLXLMCommon"], path: "Libraries/MLXLLM"),
    ]
)
