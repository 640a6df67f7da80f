"""Small packages with the names, products and targets of those that an app may use.

Each is a git repository to which SwiftPM is led from the address of the real one. The
manifests of what a package vendors have the lines that the edits in `swift_templates/upstream`
look for; each source file only imports what its target depends on.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.bridge.repositories import commit, git
from tests.bridge.trees import build_tree

GITHUB = "https://github.com"


def listed(items: Sequence[str], indent: str = "        ") -> str:
    return "".join(f"{indent}{item},\n" for item in items)


def manifest(
    name: str,
    products: Mapping[str, Sequence[str]],
    dependencies: Sequence[str] = (),
    targets: Sequence[str] = (),
    tools: str = "6.0",
) -> str:
    libraries = [
        f'.library(\n            name: "{library}",'
        f"\n            targets: {json.dumps(list(of))})"
        for library, of in products.items()
    ]
    return f"""// swift-tools-version: {tools}
import PackageDescription
let package = Package(
    name: "{name}",
    platforms: [.macOS(.v14), .iOS(.v17)],
    products: [
{listed(libraries)}    ],
    dependencies: [
{listed(dependencies)}    ],
    targets: [
{listed(targets)}    ]
)
"""


def target(
    name: str, *dependencies: str, path: str = "", kind: str = "target", more: str = ""
) -> str:
    folder = f',\n            path: "{path}"' if path else ""
    needs = ", ".join(dependencies)
    head = f'.{kind}(\n            name: "{name}",\n            dependencies: [{needs}]'
    return f"{head}{folder}{more}\n        )"


def product(name: str, package: str) -> str:
    return f'.product(name: "{name}", package: "{package}")'


def url(path: str, requirement: str) -> str:
    return f'.package(url: "{GITHUB}/{path}", {requirement})'


def source(name: str, *imports: str) -> str:
    return "".join(f"import {module}\n" for module in imports) + f"public let name{name} = 1\n"


def library(name: str, *modules: str) -> dict[str, str]:
    """Return the files of a package without dependencies."""
    text = manifest(name, {m: [m] for m in modules}, (), [target(m) for m in modules])
    return {"Package.swift": text, "LICENSE.txt": ""} | {
        f"Sources/{m}/{m}.swift": source(m) for m in modules
    }


EXTRAS = (  # what is not vendored of mlx-swift
    *[target(f"MLX{n}Tests", '"MLX"', kind="testTarget") for n in "ab"],
    *[target(f"Example{n}", '"MLX"', kind="executableTarget") for n in range(5)],
    '.plugin(\n            name: "CudaBuild",\n            capability: .buildTool()\n        )',
)
EXCLUDED = {"fmt": 5, "mlx": 16}  # as many as upstream's manifest has
CMLX = """
let noCudaCmlxExcludes = [
    "mlx/mlx/backend/cuda/allocator.cpp",
]

let platformExcludes: [String] =
        [
            "mlx/mlx/backend/no_gpu",
            "mlx/mlx/backend/metal/no_metal.cpp",
        ] + noCudaCmlxExcludes

let cmlx = Target.target(
    name: "Cmlx",
    path: "Source/Cmlx",
    exclude: platformExcludes + [
        // vendor docs
        "vendor-README.md",

        // example code + mlx-c distributed
        "mlx-c/examples",

        // vendored library
{fmt}
        // mlx files that are not part of the build
{mlx}
    ],
    plugins: [
        .plugin(name: "CudaBuild")
    ],
)

let package = Package("""
DOCUMENTATION = """
if Context.environment["MLX_SWIFT_BUILD_DOC"] == "1"
    || Context.environment["SPI_GENERATE_DOCS"] == "1"
{
    package.dependencies.append(
        .package(url: "https://github.com/apple/swift-docc-plugin", from: "1.3.0")
    )
}
"""


def mlx_swift() -> dict[str, str]:
    names = ("MLX", "MLXNN", "MLXOptimizers", "MLXRandom", "MLXFFT", "MLXLinalg", "MLXFast")
    numerics = url("apple/swift-numerics", 'from: "1.0.0"')
    parser = url("apple/swift-argument-parser", 'from: "1.0.0"')
    needs = {name: ['"MLX"'] for name in names} | {
        "MLX": ['"Cmlx"', product("Numerics", "swift-numerics")]
    }
    targets = [target(n, *needs[n], path=f"Source/{n}") for n in names]
    tools = "6.3;(experimentalCGen)"
    text = manifest(
        "mlx-swift",
        {n: [n] for n in names},
        [numerics, parser],
        ["cmlx", *targets, *EXTRAS],
        tools,
    )
    cmlx = CMLX
    for name, count in EXCLUDED.items():
        lines = listed([f'"{name}/not-built-{n}"' for n in range(count)])
        cmlx = cmlx.replace(f"{{{name}}}\n", lines)
    text = text.replace("\nlet package = Package(", cmlx) + DOCUMENTATION
    files = {f"Source/{n}/{n}.swift": source(n, "MLX") for n in names}
    return files | {
        "Package.swift": text,
        "LICENSE": "",
        "Source/MLX/MLX.swift": source("MLX", "Cmlx", "Numerics"),
        "Source/Cmlx/mlx/mlx/array.h": "",
        "Source/Cmlx/mlx/LICENSE": "",
        "Source/Cmlx/mlx/tests/test.cpp": "not C++",
        "Source/Cmlx/mlx-c/mlx/c/array.h": "",
        "Source/Cmlx/fmt/src/os.cc": "not C++",
        "Source/Cmlx/include/mlx.h": "int mlx(void);\n",
        "Source/Cmlx/mlx.c": "int mlx(void) { return 1; }\n",
    }


SYNTAX = ("SwiftSyntaxMacros", "SwiftCompilerPlugin")
LIBRARIES = {
    "MLXLMCommon": (),
    "MLXLLM": ("MLXLMCommon",),
    "MLXVLM": ("MLXLMCommon",),
    "MLXEmbedders": ("MLXLMCommon",),
    "MLXHuggingFace": ("MLXHuggingFaceMacros", "MLXLMCommon"),
    "BenchmarkHelpers": ("MLXLMCommon",),
    "IntegrationTestHelpers": ("MLXLMCommon",),
    "MLXGuidedGeneration": (),
}


def mlx_swift_lm() -> dict[str, str]:
    """Return the package with the lines that the edits look for."""
    mlx = product("MLX", "mlx-swift")
    targets = [
        target(name, mlx, *map(json.dumps, needs), path=f"Libraries/{name}")
        for name, needs in LIBRARIES.items()
    ]
    macros = "MLXHuggingFaceMacros"
    needs = [product(product_name, "swift-syntax") for product_name in SYNTAX]
    targets.insert(5, target(macros, *needs, path=f"Libraries/{macros}", kind="macro"))
    names = [f"MLXLM{number}Tests" for number in range(5)]
    targets += [target(name, '"MLXLLM"', path=name, kind="testTarget") for name in names]
    near = url("ml-explore/mlx-swift", '.upToNextMinor(from: "0.31.6")')
    syntax = url("swiftlang/swift-syntax.git", '"602.0.0" ..< "604.0.0"')
    note = f"// 602.0.0 floor: as upstream has it\n        // in two lines.\n        {syntax}"
    text = manifest(
        "mlx-swift-lm", {name: [name] for name in LIBRARIES}, [near, note], targets, "6.1"
    ).replace("import Pack", "import CompilerPluginSupport\nimport Pack")
    files = {
        f"Libraries/{name}/{name}.swift": source(name, "MLX", *needs[-1:])
        for name, needs in LIBRARIES.items()
    }
    plugin = source(macros, *SYNTAX) + "@main struct Plugin { static func main() {} }\n"
    return files | {
        "Package.swift": text + DOCUMENTATION,
        "LICENSE": "",
        f"Libraries/{macros}/{macros}.swift": plugin,
    }


JINJA = url("huggingface/swift-jinja.git", 'from: "2.0.0"')
YYJSON = url("ibireme/yyjson.git", 'exact: "0.12.0"')
PARSERS = (product("Jinja", "swift-jinja"), product("yyjson", "yyjson"))


def swift_jinja() -> dict[str, str]:
    collections = url("apple/swift-collections.git", 'from: "1.0.0"')
    needs = product("OrderedCollections", "swift-collections")
    tests = target("JinjaTests", '"Jinja"', kind="testTarget")
    targets = [target("Jinja", needs), tests]
    return {
        "Package.swift": manifest("Jinja", {"Jinja": ["Jinja"]}, [collections], targets),
        "LICENSE": "",
        "Sources/Jinja/Jinja.swift": source("Jinja", "OrderedCollections"),
        "Tests/JinjaTests/JinjaTests.swift": "import Jinja\n",
    }


def yyjson() -> dict[str, str]:
    more = ',\n            sources: ["src"],\n            publicHeadersPath: "src"'
    targets = [target("yyjson", path=".", more=more)]
    return {
        "Package.swift": manifest("yyjson", {"yyjson": ["yyjson"]}, (), targets),
        "LICENSE": "",
        "src/yyjson.c": "int yyjson_version(void) { return 1; }\n",
        "src/yyjson.h": "int yyjson_version(void);\n",
    }


def swift_transformers() -> dict[str, str]:
    collections = url("apple/swift-collections.git", 'from: "1.0.0"')
    return {
        "Package.swift": manifest(
            "swift-transformers",
            {"Hub": ["Hub"], "Tokenizers": ["Tokenizers"]},
            [JINJA, collections, YYJSON],
            [target("Hub", *PARSERS), target("Tokenizers", '"Hub"', *PARSERS)],
        ),
        "LICENSE": "",
        "Sources/Hub/Hub.swift": source("Hub", "Jinja", "yyjson"),
        # Packages copy this file; their manifest is one of h2o-pack's own.
        "Sources/Tokenizers/Tokenizers.swift": source("Tokenizers", "Jinja", "yyjson"),
    }


PACKAGES = {
    "apple/swift-collections": (
        library("swift-collections", "OrderedCollections"),
        "1.2.1 1.4.1",
    ),
    "apple/swift-numerics": (library("swift-numerics", "Numerics"), "1.0.0 1.1.1"),
    "huggingface/swift-jinja": (swift_jinja(), "2.4.2"),
    "huggingface/swift-transformers": (swift_transformers(), "1.3.3"),
    "ibireme/yyjson": (yyjson(), "0.12.0"),
    "ml-explore/mlx-swift": (mlx_swift(), "0.31.6"),
    "ml-explore/mlx-swift-lm": (mlx_swift_lm(), "3.31.4"),
    "swiftlang/swift-syntax": (library("swift-syntax", *SYNTAX), "602.0.0"),
}


def make_repositories(folder: Path) -> Path:
    """Make all repositories and what leads SwiftPM to them, for its option --config-path."""
    mirrors = []
    for path, (files, tags) in PACKAGES.items():
        repository = folder / path
        for tag in tags.split():
            commit(repository, {**files, "version": tag})
            git(repository, "tag", tag)
        mirrors += [
            {"original": f"{GITHUB}/{path}{suffix}", "mirror": repository.as_uri()}
            for suffix in ("", ".git")
        ]
    config = {"version": 1, "object": mirrors}
    build_tree(folder, {"config/mirrors.json": json.dumps(config)})
    return folder / "config"
