"""Models that an app cannot carry, and the layout that brings them apart from it."""

from __future__ import annotations

import dataclasses
import json
import plistlib
import shutil
import subprocess

import pytest

from h2o_pack import assets
from h2o_pack.bundling.app_size import check_app_size
from h2o_pack.errors import ExitCode, UserError
from h2o_pack.facts import store_limits
from h2o_pack.package.contents import TEMPLATES, make_package
from h2o_pack.package.render import render
from h2o_pack.plan.package_plan import CacheOptions, make_plan
from tests.bridge import openstep
from tests.bridge.bundling.sources import File, Model
from tests.bridge.trees import tree
from tests.hub.contents import sparse

PROJECT = "App/Chat.xcodeproj/project.pbxproj"


@pytest.fixture
def plan(model):
    return dataclasses.replace(make_plan(model, CacheOptions(max_kv=512)), asset_pack=True)


@pytest.fixture
def files(plan):
    return render(plan, assets.root(), TEMPLATES)


@dataclasses.dataclass(frozen=True)
class Sized(Model):
    @property
    def size(self):
        return sum(file.size for file in self.files)


def sized(size):
    return Sized("someone/large", (File("model.safetensors", size),))


def test_a_model_that_makes_the_app_too_large_is_refused_with_the_way_out():
    check_app_size(sized(4_000_000_000), asset_pack=False)
    with pytest.raises(UserError) as caught:
        check_app_size(sized(4_607_731_712), asset_pack=False)
    assert caught.value.code == ExitCode.USAGE
    assert str(caught.value) == (
        "someone/large has 4.61 GB, more than Apple's limit for an uncompressed app, 4 GB "
        f"({store_limits()['app'].source}). Give --asset-pack, so that it comes apart from the "
        "app, or choose a smaller model or fewer bits."
    )


def test_an_asset_pack_has_a_limit_too():
    check_app_size(sized(4_607_731_712), asset_pack=True)
    with pytest.raises(UserError, match=r"200 GB compressed .*\. Choose a smaller"):
        check_app_size(sized(200_000_000_001), asset_pack=True)


def test_a_too_large_model_is_refused_before_anything_is_written(model, run, tmp_path):
    sparse(model.folder / "model-2.safetensors", 4_100_000_000, header())
    output = tmp_path / "Demo"
    command = ("ios", "--model", model.folder, "--max-kv", 256, "--output", output)
    result = run(*command)
    assert result.exit_code == 2
    assert "Give --asset-pack" in result.stderr
    assert not output.exists()


def header():
    """Return a safetensors header of one large tensor."""
    size = 4_100_000_000 - 8 - 96
    tensor = {"w2": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}
    return (96).to_bytes(8, "little") + json.dumps(tensor).encode().ljust(96)


def test_the_manifest_is_as_apples_tool_takes_it(files):
    assert json.loads(files["AssetPack/Manifest.json"]) == {
        "assetPackID": "tiny.model",
        "downloadPolicy": {
            "prefetch": {"installationEventTypes": ["firstInstallation", "subsequentUpdate"]}
        },
        "fileSelectors": [{"directory": "Model"}],
        "platforms": ["iOS"],
    }


def test_the_app_declares_managed_packs_that_apple_hosts_and_no_other_keys(files):
    info = plistlib.loads(files["App/Info.plist"].encode())
    assert {key: value for key, value in info.items() if key.startswith("BA")} == {
        "BAAppGroupID": "group.org.example.tiny",
        "BAHasManagedAssetPacks": True,
        "BAUsesAppleHosting": True,
    }
    entitlements = plistlib.loads(files["App/Chat.entitlements"].encode())
    assert entitlements["com.apple.security.application-groups"] == ["group.org.example.tiny"]
    assert len(entitlements) == 3


def test_the_model_is_not_in_the_app(files):
    project = openstep.read(files[PROJECT])
    paths = [each.get("path", "") for each in project["objects"].values()]
    assert "../Model" not in paths
    assert "Model in Resources" not in files[PROJECT]
    assert "IPHONEOS_DEPLOYMENT_TARGET = 26.0;" in files[PROJECT]


def test_the_session_waits_for_the_pack(files):
    text = files["Sources/TinyModel/BundledModel+Session.swift"]
    assert 'public static let assetPack = "tiny.model"' in text
    assert "from: ModelFolder.find(assetPack: assetPack), plan: memory" in text


def test_the_readme_says_what_is_left_to_do(files):
    assert "xcrun ba-package package AssetPack/Manifest.json" in files["README.md"]
    assert "group.org.example.tiny" in files["README.md"]


def test_a_package_without_the_option_has_nothing_of_it(model):
    plain = make_plan(model, CacheOptions(max_kv=512))
    for path, text in render(plain, assets.root(), TEMPLATES).items():
        assert not path.startswith("AssetPack/")
        if path not in ("Sources/H2OKit/ModelFolder+AssetPack.swift", "h2o-pack.lock.json"):
            assert "AssetPack" not in text, path
            assert "BAHas" not in text, path


def test_the_model_lies_in_the_package_as_always(plan, tmp_path):
    made = make_package(plan, tmp_path / "Demo")
    assert "Model/model.safetensors" in tree(made.folder)
    assert "AssetPack/Manifest.json" in made.files


@pytest.mark.skipif(shutil.which("swiftc") is None, reason="there is no Swift toolchain")
@pytest.mark.swift
def test_its_swift_parses(files, tmp_path):
    for path, text in files.items():
        if path.endswith(".swift") and ("AssetPack" in path or "Session.swift" in path):
            (tmp_path / path.replace("/", "-")).write_text(text)
    sources = [str(path) for path in tmp_path.glob("*.swift")]
    assert len(sources) > 1
    subprocess.run(["swiftc", "-parse", "-swift-version", "6", *sources], check=True)
