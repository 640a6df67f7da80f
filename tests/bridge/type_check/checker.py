"""Compiles Swift for Apple's systems on Linux, with declarations of Apple's modules.

declarations/ has what the package, its app and the samples use of each module: names, types,
isolation and Sendable as Apple's documentation states them, and no code that runs.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from h2o_pack.parity.swift import Host, environment
from tests.bridge.trees import build_tree
from tests.processes import output_of, ran

DECLARATIONS = Path(__file__).parent / "declarations"
MODULES = (
    "AppleFoundation", "UIKit", "SwiftUI",
    "System", "ExtensionFoundation", "BackgroundAssets", "StoreKit",
    "BackgroundTasks", "AppIntents", "NaturalLanguage", "Accelerate", "AnyLanguageModel",
)  # fmt: skip
"""The modules of DECLARATIONS; each comes after those that it imports."""
PREVIEW = re.compile(r"^#Preview \{", re.MULTILINE)
"""A macro, whose plug-in only Xcode has."""
PREVIEW_FUNCTION = "@MainActor @ViewBuilder private func preview() -> some View {"


@dataclass(frozen=True)
class Checker:
    """Swift's compiler, and the modules that code may import.

    host: the package's build, which made its modules. folder: of further modules, which come
    before those of the build.
    """

    host: Host
    folder: Path

    def declare(self) -> None:
        """Make the modules of DECLARATIONS."""
        for name in MODULES:
            assert_silent(self.make(name, [DECLARATIONS / f"{name}.swift"]))

    def make(self, module: str, sources: Iterable[Path]) -> str:
        """Make a module that others import; return what the compiler says."""
        made = self.folder / f"{module}.swiftmodule"
        return self._compile("-emit-module", "-module-name", module, "-o", made, *sources)

    def check(self, files: Mapping[str, str], folder: Path) -> str:
        """Compile files, written to a folder, as one program; return what the compiler says."""
        texts = {path: PREVIEW.sub(PREVIEW_FUNCTION, text) for path, text in files.items()}
        build_tree(folder, texts)
        return self._compile("-typecheck", *(folder / path for path in texts))

    def _compile(self, *arguments: object) -> str:
        """Compile all files in one process (`-wmo`), in half of the time."""
        headers = self.host.root / "Vendor/mlx-swift/Source/Cmlx/include"
        options = (
            "-swift-version", "6", "-parse-as-library", "-wmo",
            "-package-name", self.host.root.name.lower(),
            "-I", self.folder, "-I", self.host.scratch / "debug/Modules",
            "-Xcc", f"-I{headers}", "-Xcc", f"-fmodule-map-file={headers / 'module.modulemap'}",
        )  # fmt: skip
        process = ran("swiftc", *options, *arguments)
        assert process.returncode == 0 or process.stderr
        return process.stderr


def build_modules(host: Host) -> None:
    """Build the package's modules, as the package's tests do."""
    output_of("swift", "build", *host.options, env=environment({}))


def assert_silent(messages: str) -> None:
    """Fail with all that the compiler says."""
    assert not messages, messages
