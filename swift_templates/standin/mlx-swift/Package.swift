// swift-tools-version: 6.1
// A stand-in for mlx-swift 0.31.6, for builds without its sources. It has the part of mlx-swift that
// H2OKit uses, and computes on the CPU with the libmlx of the Python wheel.

import PackageDescription

guard let mlx = Context.environment["MLX_ROOT"] else {
    fatalError(
        "MLX_ROOT is not set: this package links the libmlx of the Python package mlx 0.32.4. "
            + "Set it to the folder that "
            + "`python -c 'import mlx; print(list(mlx.__path__)[0])'` prints.")
}

let package = Package(
    name: "mlx-swift",
    platforms: [.macOS(.v14), .iOS(.v17)],
    products: [
        .library(name: "MLX", targets: ["MLX"]),
        .library(name: "MLXNN", targets: ["MLXNN"]),
    ],
    targets: [
        .target(
            name: "Cmlx",
            path: "Source/Cmlx",
            sources: ["all.cpp", "h2o/kernels.cpp"],
            cxxSettings: [
                .headerSearchPath("mlx-c"),
                .define("H2O_CPU_ONLY"),
                // MLX's headers use std::bind, which uses deprecated parts of libstdc++ 12.
                .unsafeFlags(["-I\(mlx)/include", "-Wno-deprecated-declarations"]),
            ],
            linkerSettings: [
                .linkedLibrary("mlx"),
                .unsafeFlags(["-L\(mlx)/lib", "-Xlinker", "-rpath", "-Xlinker", "\(mlx)/lib"]),
            ]),
        .target(name: "MLX", dependencies: ["Cmlx"], path: "Source/MLX"),
        .target(name: "MLXNN", dependencies: ["MLX"], path: "Source/MLXNN"),
    ],
    cxxLanguageStandard: .gnucxx20
)
