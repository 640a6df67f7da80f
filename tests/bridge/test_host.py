from __future__ import annotations

import dataclasses
import os
from functools import partial

import pytest

from h2o_pack.errors import ExitCode
from h2o_pack.files import lock
from h2o_pack.package.build import make_package
from h2o_pack.parity import swift as hosts
from h2o_pack.spec import CacheSpec
from h2o_pack.vendoring.vendor import digest
from tests.bridge.plans import plan_of
from tests.bridge.refusals import refused
from tests.bridge.trees import build_tree, tree
from tests.messages import says


@pytest.fixture
def package(model, tmp_path, copied_assets):
    return make_package(plan_of(model, CacheSpec(max_kv=512)), tmp_path / "Demo").folder


def test_without_vendored_sources_the_stand_in_takes_their_place(package):
    host = hosts.prepare(package)
    says(host.name)
    files = tree(host.root)
    assert files["Package.swift"] == (package / "Package.swift").read_text()
    for name in tree(package / "Sources"):
        assert files[f"Sources/{name}"] == (package / "Sources" / name).read_text()
    for name in (
        "mlx-swift/Package.swift",
        "mlx-swift/Source/Cmlx/h2o/h2o.cpp",
        "mlx-swift/Source/Cmlx/include/mlx/c/h2o.h",
        "mlx-swift/Source/MLX/MLXFast+H2OLayerCache.swift",
        "mlx-swift-lm/Libraries/MLXLMCommon/RoutedAttentionCache.swift",
    ):
        assert f"Vendor/{name}" in files


def test_only_what_changed_is_written_again(package, copied_assets):
    root = hosts.prepare(package).root
    times = {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file()}
    for path in times:
        os.utime(path, ns=(1, 1))
    source = next((copied_assets / "cexport/h2o").glob("*.cpp"))
    source.write_text(source.read_text() + "// changed\n")
    hosts.prepare(package)
    changed = {path.name for path in times if path.stat().st_mtime_ns != 1}
    assert changed == {source.name}


def test_what_the_package_no_longer_has_goes(package):
    extra = package / "Sources/H2OKit/Extra.swift"
    extra.write_text("let extra = 1\n")
    root = hosts.prepare(package).root
    assert (root / "Sources/H2OKit/Extra.swift").exists()
    extra.unlink()
    hosts.prepare(package)
    assert not (root / "Sources/H2OKit/Extra.swift").exists()


def vendored(package, assets_root, host: str = hosts.SYSTEM) -> None:
    build_tree(package, {"Vendor/mlx-swift/Package.swift": ""})
    record = lock.read(package)
    vendor = lock.Vendored(host, digest(assets_root, ""), ())
    (package / lock.NAME).write_text(dataclasses.replace(record, vendor=vendor).to_json())


def test_vendored_sources_are_used_in_place(package, copied_assets):
    vendored(package, copied_assets)
    host = hosts.prepare(package)
    assert host.name == "mlx-swift 0.31.6 with mlx-swift-lm main-2026-08-22 (vendored)"
    assert host.root == package


refusal = partial(refused, hosts.prepare, code=ExitCode.VERSION)


def test_vendored_sources_with_other_edits_are_refused(package, copied_assets):
    vendored(package, copied_assets)
    core = copied_assets / "cexport/c/h2o.cpp"
    core.write_text(core.read_text() + "// newer\n")
    says(refusal(package))


def test_vendored_sources_for_another_host_are_refused(package, copied_assets):
    other = "apple" if hosts.SYSTEM == "linux" else "linux"
    vendored(package, copied_assets, other)
    says(refusal(package))
