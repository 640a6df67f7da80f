"""Models that an app cannot carry, and the layout that brings them apart from it."""

from __future__ import annotations

import plistlib

import pytest

from h2o_pack import assets
from h2o_pack.bundling.delivery import app_size, check_app_size
from h2o_pack.coexistence.app import read_openstep
from h2o_pack.errors import ExitCode, UserError
from h2o_pack.package.build import TEMPLATES, make_package
from h2o_pack.package.render import render
from h2o_pack.spec import CacheSpec, DeliverySpec
from tests.bridge.models.checkpoints import sparse_checkpoint
from tests.bridge.plans import plan_of
from tests.bridge.refusals import refused
from tests.bridge.test_app import PROJECT, of_kind, references
from tests.bridge.trees import tree
from tests.messages import says


@pytest.fixture
def plan(model):
    return plan_of(model, CacheSpec(max_kv=512), delivery=DeliverySpec(asset_pack=True))


LARGE = ("someone/large",)


def test_a_model_that_makes_the_app_too_large_is_refused_with_the_way_out():
    code = app_size(0).code
    check_app_size(LARGE, 4_000_000_000 - code, DeliverySpec())
    with pytest.raises(UserError):
        check_app_size(LARGE, 4_000_000_001 - code, DeliverySpec())
    refusal = refused(check_app_size, LARGE, 4_607_731_712, DeliverySpec(), code=ExitCode.USAGE)
    says(refusal)


def test_an_asset_pack_has_a_limit_too():
    check_app_size(LARGE, 4_607_731_712, DeliverySpec(asset_pack=True))
    with pytest.raises(UserError) as caught:
        check_app_size(LARGE, 200_000_000_001, DeliverySpec(asset_pack=True))
    says(caught.value)


def test_a_too_large_model_is_refused_before_anything_is_written(model, run, tmp_path):
    tensors = {"w2": ("U8", [4_100_000_000])}
    sparse_checkpoint(model.folder / "model-2.safetensors", tensors)
    output = tmp_path / "Demo"
    command = ("ios", "--model", model.folder, "--max-kv", 256, "--output", output)
    result = run(*command)
    assert result.exit_code == 2
    assert "Give --asset-pack or --download" in result.stderr
    assert not output.exists()


def test_the_model_lies_in_the_package_as_always(plan, tmp_path):
    made = make_package(plan, tmp_path / "Demo")
    assert "Model/model.safetensors" in tree(made.folder)
    assert "AssetPack/Manifest.json" in made.files


@pytest.fixture
def files(plan):
    return render(plan, assets.root(), TEMPLATES)


@pytest.fixture
def objects(files):
    return read_openstep(files[PROJECT])["objects"]


def target(objects, name):
    [found] = [each for each in of_kind(objects, "PBXNativeTarget") if each["name"] == name]
    return found


def test_every_object_of_its_project_exists_and_is_used(files, objects):
    root = read_openstep(files[PROJECT])["rootObject"]
    assert references(list(objects.values())) | {root} == set(objects)


def test_the_app_embeds_a_downloader_extension_that_is_built_before_it(objects):
    """The kind and the folder are those of ExtensionKit, as the extension point asks."""
    app, extension = target(objects, "Chat"), target(objects, "Downloader")
    assert extension["productType"] == "com.apple.product-type.extensionkit-extension"
    [phase] = of_kind(objects, "PBXCopyFilesBuildPhase")
    assert phase in [objects[each] for each in app["buildPhases"]]
    assert phase["dstPath"] == "$(EXTENSIONS_FOLDER_PATH)"
    [embedded] = [objects[objects[each]["fileRef"]] for each in phase["files"]]
    assert embedded == objects[extension["productReference"]]
    assert embedded["explicitFileType"] == "wrapper.extensionkit-extension"
    [dependency] = [objects[each] for each in app["dependencies"]]
    assert objects[dependency["target"]] == extension
    proxy = objects[dependency["targetProxy"]]
    assert objects[proxy["remoteGlobalIDString"]] == extension
    [project] = of_kind(objects, "PBXProject")
    assert [objects[each] for each in project["targets"]] == [app, extension]


def test_the_extension_is_a_source_with_its_lists_and_an_identifier_below_the_apps(
    files, objects
):
    [group] = target(objects, "Downloader")["fileSystemSynchronizedGroups"]
    folder = f"App/{objects[group]['path']}/"
    [source] = [text for name, text in files.items() if name.startswith(folder)]
    assert "StoreDownloaderExtension" in source
    settings = [each["buildSettings"] for each in of_kind(objects, "XCBuildConfiguration")]
    apps = {each["PRODUCT_BUNDLE_IDENTIFIER"] for each in settings if "INFOPLIST_FILE" in each}
    of_extension = [each for each in settings if each.get("SKIP_INSTALL") == "YES"]
    assert len(of_extension) == 2
    for each in of_extension:
        identifier = each["PRODUCT_BUNDLE_IDENTIFIER"]
        assert apps == {identifier, identifier.removesuffix(".Downloader")}
        assert f"App/{each['INFOPLIST_FILE']}" in files
        assert f"App/{each['CODE_SIGN_ENTITLEMENTS']}" in files


def test_app_and_extension_share_the_app_group_that_the_app_declares(files):
    declared = plistlib.loads(files["App/Info.plist"].encode())
    assert declared["BAHasManagedAssetPacks"] is True
    assert declared["BAUsesAppleHosting"] is True
    for name in ("Chat", "Downloader"):
        entitlements = plistlib.loads(files[f"App/{name}.entitlements"].encode())
        groups = entitlements["com.apple.security.application-groups"]
        assert groups == [declared["BAAppGroupID"]]


def test_the_extension_names_the_point_of_background_assets(files):
    declared = plistlib.loads(files["App/Downloader.plist"].encode())
    assert declared["EXAppExtensionAttributes"] == {
        "EXExtensionPointIdentifier": "com.apple.background-asset-downloader-extension"
    }


def test_an_app_with_its_model_in_it_has_no_extension(model):
    files = render(plan_of(model, CacheSpec(max_kv=512)), assets.root(), TEMPLATES)
    assert not [name for name in files if "Downloader" in name]
    assert "Downloader" not in files[PROJECT]
