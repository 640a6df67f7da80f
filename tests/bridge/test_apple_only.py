"""Swift that only Apple's systems compile, type-checked here with what it asks of them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from h2o_pack import assets

# What dyld gives on Apple's systems, by its header's types.
DYLD = """
func _dyld_image_count() -> UInt32 { 0 }
func _dyld_get_image_name(_ index: UInt32) -> UnsafePointer<CChar>! { nil }
"""

pytestmark = pytest.mark.swift


# What the guard of the background asks of UIKit and MLX, by their declarations.
UIKIT = """
import Foundation
@MainActor class UIApplication {
    enum State { case active, inactive, background }
    static var shared: UIApplication { UIApplication() }
    var applicationState: State { .active }
    nonisolated static let didEnterBackgroundNotification = Notification.Name("background")
    nonisolated static let willEnterForegroundNotification = Notification.Name("foreground")
}
public struct StreamOrDevice {
    public struct Stream { public func synchronize() {} }
    public static var `default`: StreamOrDevice { StreamOrDevice() }
    public var stream: Stream { Stream() }
}
func withError<R>(_ body: () throws -> R) throws -> R { try body() }
"""


# What the footprint asks of Mach, by the headers' types.
MACH = """
typealias integer_t = Int32
typealias natural_t = UInt32
typealias mach_msg_type_number_t = UInt32
typealias task_flavor_t = UInt32
struct task_vm_info_data_t {
    var phys_footprint: UInt64 = 0
    var ledger_phys_footprint_peak: Int64 = 0
}
let TASK_VM_INFO: Int32 = 22
let KERN_SUCCESS: Int32 = 0
func task_self_trap() -> UInt32 { 0 }
func task_info(
    _ task: UInt32, _ flavor: task_flavor_t, _ info: UnsafeMutablePointer<integer_t>?,
    _ count: UnsafeMutablePointer<mach_msg_type_number_t>?
) -> Int32 { 0 }
"""


def typecheck(folder: Path, **texts: str) -> subprocess.CompletedProcess[str]:
    paths = []
    for name, text in texts.items():
        paths.append(folder / f"{name}.swift")
        paths[-1].write_text(text)
    command = ["swiftc", "-typecheck", "-swift-version", "6", "-package-name", "h2o"]
    command += map(os.fspath, paths)
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("simulator", [True, False])
def test_the_search_for_metal_kernels_type_checks(tmp_path, simulator):
    guards = assets.root() / "swift_templates/H2OKit/Guards"
    system = (guards / "MetalCheck+System.swift").read_text("utf-8")
    for condition, holds in (
        ("#if canImport(Metal)", True),
        ("#elseif canImport(Metal)", True),
        ("#if targetEnvironment(simulator)", simulator),
    ):
        assert condition in system
        keyword = condition.split()[0]
        system = system.replace(condition, f"{keyword} {str(holds).lower()}")
    assert "import MachO\n" in system
    kit = guards.parent
    warning = (kit / "H2OWarning.swift").read_text("utf-8")
    done = typecheck(
        tmp_path,
        check=(guards / "MetalCheck.swift").read_text("utf-8"),
        system=system.replace("import MachO\n", ""),
        error=(kit / "H2OLoadingError.swift").read_text("utf-8"),
        text=(kit / "H2OLoadingError+Text.swift").read_text("utf-8"),
        plan=(guards / "MemoryPlan.swift").read_text("utf-8"),
        manifest=(kit / "Bundle/ModelManifest.swift").read_text("utf-8"),
        dyld=DYLD,
        warning=warning.partition("extension H2OConfiguration")[0],
    )
    assert done.returncode == 0, done.stderr
    assert "warning:" not in done.stderr


def test_the_guard_of_the_background_type_checks(tmp_path):
    guards = assets.root() / "swift_templates/H2OKit/Guards"
    system = (guards / "BackgroundGuard+System.swift").read_text("utf-8")
    assert system.count("#if canImport(UIKit)") == 2
    system = system.replace("#if canImport(UIKit)", "#if true").replace(
        "    import UIKit\n", ""
    )
    guard = (guards / "BackgroundGuard.swift").read_text("utf-8")
    guard = guard.replace("import MLX\n", "")
    done = typecheck(tmp_path, guard=guard, system=system, uikit=UIKIT)
    assert done.returncode == 0, done.stderr
    assert "warning:" not in done.stderr


def test_the_footprint_type_checks(tmp_path):
    guards = assets.root() / "swift_templates/H2OKit/Guards"
    source = (guards / "Footprint.swift").read_text("utf-8")
    assert source.count("#if canImport(Darwin)") == 1
    source = source.replace("#if canImport(Darwin)", "#if true").replace("package ", "")
    done = typecheck(tmp_path, footprint=source, mach=MACH)
    assert done.returncode == 0, done.stderr
    assert "warning:" not in done.stderr
