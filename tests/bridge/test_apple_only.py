"""Swift that only Apple's systems compile, type-checked here with what it asks of them."""

from pathlib import Path

import pytest

from h2o_pack import assets
from tests.processes import ran

# What dyld gives on Apple's systems, by its header's types.
DYLD = """
func _dyld_image_count() -> UInt32 { 0 }
func _dyld_get_image_name(_ index: UInt32) -> UnsafePointer<CChar>! { nil }
"""

pytestmark = pytest.mark.swift


def typecheck(folder: Path, **texts: str) -> None:
    """Check Swift of these files together, which must have no error and no warning."""
    paths = []
    for name, text in texts.items():
        paths.append(folder / f"{name}.swift")
        paths[-1].write_text(text)
    process = ran("swiftc", "-typecheck", "-swift-version", 6, "-package-name", "h2o", *paths)
    assert process.returncode == 0, process.stderr
    assert "warning:" not in process.stderr


# The limits that MLX keeps, which the guards set.
LIMITS = """
enum Memory {
    nonisolated(unsafe) static var cacheLimit = 0
    nonisolated(unsafe) static var memoryLimit = 0
}
"""


WARNING = "enum H2OWarning {\n    static let simulator: Void = ()\n}\n"
"""Of H2OKit's own, which asks the core, what this code uses."""


def swift(path: str, *imports: str) -> str:
    """Read a file of the templates without the imports of what is not here."""
    text = (assets.root() / "swift_templates" / path).read_text("utf-8")
    for module in imports:
        assert f"import {module}\n" in text
        text = text.replace(f"import {module}\n", "")
    return text


def where(condition: str, text: str, *, holds: bool = True) -> str:
    """Return a text in which a condition of the compiler holds, or does not."""
    assert condition in text
    return text.replace(condition, f"{condition.split(maxsplit=1)[0]} {str(holds).lower()}")


def of_memory() -> dict[str, str]:
    """Return what the plan of memory is made of."""
    return {
        "limits": LIMITS,
        "error": swift("H2OKit/Bundle/H2OLoadingError.swift"),
        "plan": swift("H2OKit/Bundle/MemoryPlan.swift"),
        "manifest": swift("H2OKit/Bundle/ModelManifest.swift"),
        "chat": swift("H2OKit/Bundle/ChatFacts.swift"),
        "digest": swift("H2OKit/Bundle/FileDigest.swift", "MLX"),
        "regular": swift("H2OKit/Files/RegularFile.swift"),
        "sha256": swift("upstream/linux/PortableSHA256.swift"),
    }


@pytest.mark.parametrize("simulator", [True, False])
def test_the_search_for_metal_kernels_type_checks(tmp_path, simulator):
    check = swift("H2OKit/Guards/MetalCheck.swift", "MachO")
    for condition in ("#if canImport(Metal)", "#elseif canImport(Metal)"):
        check = where(condition, check)
    check = where("#if targetEnvironment(simulator)", check, holds=simulator)
    memory = swift("H2OKit/Guards/MemoryGuard.swift", "MLX", "UIKit")
    texts = {"check": check, "memory": memory, "dyld": DYLD, "warning": WARNING}
    typecheck(tmp_path, **texts, **of_memory())
