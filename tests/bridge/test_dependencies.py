"""What a generated package stands on: nothing that is chosen or compiled unasked."""

from __future__ import annotations

import re

import pytest

from h2o_pack import assets
from h2o_pack.facts import requirements
from h2o_pack.package.build import TEMPLATES
from h2o_pack.package.render import render
from h2o_pack.spec import CacheSpec
from h2o_pack.vendoring.vendor import REMOTE
from tests.bridge.plans import plan_of

APPLE = {
    "BackgroundAssets", "Charts", "System", "Foundation", "MachO", "Metal", "Observation",
    "SwiftUI",
    "Synchronization", "UIKit", "XCTest", "os", "CryptoKit", "FoundationModels",
}  # fmt: skip
OURS = {
    "H2OChatScreen",
    "H2OFoundationModels",
    "H2OKit",
    "H2OSessions",
    "H2OTestModels",
    "TinyModel",
}
UPSTREAM = {
    "MLX",
    "MLXFast",
    "MLXLLM",
    "MLXLMCommon",
    "MLXNN",
    "H2OGrammar",
    "H2OTokenizers",
    "Cmlx",
}
LINUX = {"FoundationNetworking", "Glibc"}

IMPORT = re.compile(
    r"^\s*(?:@\w+\s+)?import (?:(?:enum|struct|class|func) )?(\w+)", re.MULTILINE
)


@pytest.fixture
def files(model):
    plan = plan_of(model, CacheSpec(max_kv=512))
    return render(plan, assets.root(), TEMPLATES)


def test_a_package_depends_on_folders_only(files):
    manifest = files["Package.swift"]
    assert not REMOTE.search(manifest)
    assert manifest.count(".package(") == manifest.count(".package(path: ") == 3


def test_no_source_needs_a_macro_of_a_package(files):
    sources = {name: text for name, text in files.items() if name.endswith(".swift")}
    del sources["Package.swift"]
    imported = {module for text in sources.values() for module in IMPORT.findall(text)}
    assert {"MLX", "MLXLMCommon", "H2OTokenizers"} <= imported
    assert imported <= APPLE | OURS | UPSTREAM | LINUX
    for name, text in sources.items():
        assert not re.search(r"#externalMacro|#huggingFace|\bmacro \w+\(", text), name


def test_the_manifest_asks_for_the_swift_that_the_doctor_asks_for(files):
    wanted = f"// swift-tools-version: {requirements()['swift'].version}"
    assert files["Package.swift"].splitlines()[0] == wanted
