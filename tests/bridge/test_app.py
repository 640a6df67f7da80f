"""The app in a package: its project, property lists and sources."""

from __future__ import annotations

import json
import os
import plistlib
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from h2o_pack import assets
from h2o_pack.coexistence.app import read_openstep
from h2o_pack.files import write
from h2o_pack.package.build import TEMPLATES
from h2o_pack.package.render import render
from h2o_pack.spec import CacheSpec
from tests.bridge.plans import plan_of

PROJECT = "App/Chat.xcodeproj/project.pbxproj"
OBJECT = re.compile(r"[0-9A-F]{24}")


@pytest.fixture
def files(model):
    plan = plan_of(model, CacheSpec(max_kv=512), "My_App 2")
    return render(plan, assets.root(), TEMPLATES)


@pytest.fixture
def project(files):
    return read_openstep(files[PROJECT])


@pytest.fixture
def objects(project):
    return project["objects"]


def of_kind(objects, kind: str) -> list[dict]:
    return [each for each in objects.values() if each["isa"] == kind]


def references(value) -> set[str]:
    if isinstance(value, str):
        return {value} if OBJECT.fullmatch(value) else set()
    parts = value.values() if isinstance(value, dict) else value
    return set().union(*map(references, parts))


def test_every_object_of_the_project_exists_and_is_used(project, objects):
    assert all(OBJECT.fullmatch(name) for name in objects)
    used = references(list(objects.values())) | {project["rootObject"]}
    assert used == set(objects)


def test_its_sources_are_a_folder_that_xcode_keeps_in_step(project, objects, files):
    assert project["objectVersion"] == "77"
    [group] = of_kind(objects, "PBXFileSystemSynchronizedRootGroup")
    [target] = of_kind(objects, "PBXNativeTarget")
    assert [objects[each] for each in target["fileSystemSynchronizedGroups"]] == [group]
    kinds = {Path(name).suffix for name in files if name.startswith(f"App/{group['path']}/")}
    assert kinds == {".json", ".png", ".swift", ".txt", ".xcprivacy", ".xcstrings"}


def test_the_model_is_a_folder_reference_among_the_resources(objects):
    [phase] = of_kind(objects, "PBXResourcesBuildPhase")
    [model] = [objects[objects[each]["fileRef"]] for each in phase["files"]]
    assert model["lastKnownFileType"] == "folder"
    assert (model["path"], model["sourceTree"]) == ("../Model", "SOURCE_ROOT")


def test_it_links_the_products_of_the_package_around_it(objects, files):
    [package] = of_kind(objects, "XCLocalSwiftPackageReference")
    assert package["relativePath"] == ".."
    products = of_kind(objects, "XCSwiftPackageProductDependency")
    names = {each["productName"] for each in products}
    assert names == {"H2OSessions", "My_App_2Model"}
    for each in products:
        assert f'.library(name: "{each["productName"]}"' in files["Package.swift"]


def test_its_settings_name_files_that_exist(objects, files):
    settings = [
        each["buildSettings"]
        for each in of_kind(objects, "XCBuildConfiguration")
        if "INFOPLIST_FILE" in each["buildSettings"]
    ]
    assert len(settings) == 2
    for each in settings:
        assert f"App/{each['INFOPLIST_FILE']}" in files
        assert f"App/{each['CODE_SIGN_ENTITLEMENTS']}" in files
        assert each["PRODUCT_BUNDLE_IDENTIFIER"] == "org.example.My-App-2"
        assert each["PRODUCT_NAME"] == "My_App-2"
    [product] = [each for each in of_kind(objects, "PBXFileReference") if "app" in each["path"]]
    assert product["path"] == "My_App-2.app"


@pytest.mark.parametrize("name", ["MLX", "H2OKit", "Numerics"])
def test_an_app_named_like_a_module_of_the_package_is_another_module(model, name):
    files = render(plan_of(model, CacheSpec(512), name), assets.root(), TEMPLATES)
    objects = read_openstep(files[PROJECT])["objects"]
    for each in of_kind(objects, "XCBuildConfiguration"):
        settings = each["buildSettings"]
        if "PRODUCT_NAME" in settings:
            assert settings["PRODUCT_NAME"] == name
            assert settings["PRODUCT_MODULE_NAME"] == "H2OChatApp"


def test_the_name_below_the_icon_is_the_one_given_in_any_script(model):
    plan = plan_of(model, CacheSpec(512), "Mein \u00d6rtchen & <Co>")
    files = render(plan, assets.root(), TEMPLATES)
    info = plistlib.loads(files["App/Info.plist"].encode("ascii"))
    assert info["CFBundleDisplayName"] == "Mein \u00d6rtchen & <Co>"
    assert info["CFBundleName"] == "$(PRODUCT_NAME)"


def test_both_memory_entitlements_are_asked_for(files):
    assert plistlib.loads(files["App/Chat.entitlements"].encode()) == {
        "com.apple.developer.kernel.extended-virtual-addressing": True,
        "com.apple.developer.kernel.increased-memory-limit": True,
    }


TEXTS = re.compile(
    r"""(?:Text|Toggle|Button|TextField|ProgressView|DisclosureGroup|Label|Menu|Picker"""
    r"""|LabeledContent|navigationTitle|(?<!Attributed)String)\((?:localized:)?\s*"((?:[^"\\]|\\.)*)\""""
    r"""|accessibilityLabel\([^"\n]*"((?:[^"\\]|\\.)*)"(?:\s*:\s*"((?:[^"\\]|\\.)*)")?"""
)
VALUE = re.compile(r"\\\((?:[^()]|\([^()]*\))*\)")
PLACEHOLDER = re.compile(r"%(?:@|lld)")


def catalog_and_texts(files) -> tuple[set[str], set[str]]:
    """Return the texts of the string catalog and those of the views, values left out."""
    views = [text for name, text in files.items() if re.match(r"App/Chat/.*\.swift", name)]
    shown = {
        VALUE.sub("%", text)
        for view in views
        for found in TEXTS.findall(view.partition("#Preview")[0])
        for text in found
        if text
    }
    catalog = json.loads(files["App/Chat/Localizable.xcstrings"])
    assert catalog["sourceLanguage"] == "en"
    return {PLACEHOLDER.sub("%", key) for key in catalog["strings"]}, shown


def test_every_text_that_a_user_sees_is_in_the_string_catalog(files):
    catalog, shown = catalog_and_texts(files)
    assert catalog == shown


@pytest.mark.swift
def test_the_views_are_swift(files, tmp_path):
    """SwiftUI is missing here, so that they are parsed and not type-checked."""
    views = {name: text for name, text in files.items() if re.match(r"App/.*\.swift", name)}
    write.write_files(tmp_path, views)
    command = ["swiftc", "-parse", "-swift-version", "6", *views]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def lists(files, folder: Path) -> list[Path]:
    names = [PROJECT, "App/Info.plist", "App/Chat.entitlements"]
    write.write_files(folder, {name: files[name] for name in names})
    return [folder / name for name in names]


@pytest.mark.skipif(shutil.which("plutil") is None, reason="there is no plutil")
def test_plutil_reads_them(files, tmp_path):
    for path in lists(files, tmp_path):
        command = ["plutil", "-lint", os.fspath(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "text", ["{", "{a = 1}", "(a b", "{a 1;}", "{a = 1; a = 2;}", "é", "{} x", ")"]
)
def test_the_reader_of_projects_refuses_what_is_no_property_list(text):
    with pytest.raises((ValueError, IndexError)):
        read_openstep(text)
