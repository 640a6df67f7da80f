// swift-tools-version: 6.1
// Stands in for mlx-swift-lm 3.31.4 where its sources cannot be had: the cache
// protocol, the attention that calls it, how generation makes caches, greedy generation.
// On Linux it brings FoundationModels too, which Apple's systems have: what imports a module
// only where there is one finds it in what its dependencies built.

import PackageDescription

let package = Package(
    name: "mlx-swift-lm",
    platforms: [.macOS(.v14), .iOS(.v17)],
    products: [
        .library(name: "MLXLMCommon", targets: ["MLXLMCommon"]),
        .library(name: "MLXLLM", targets: ["MLXLLM"]),
        .library(name: "H2OGrammar", targets: ["H2OGrammar"]),
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
            name: "H2OGrammar", dependencies: ["MLXLMCommon"], path: "Libraries/H2OGrammar"),
        .target(name: "MLXLLM", dependencies: ["MLXLMCommon"], path: "Libraries/MLXLLM"),
    ]
)
