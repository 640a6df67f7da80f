"""The app in a package, with its model in it or apart: its project, lists and sources.

What each layout has, tests/golden shows; here its parts must fit each other.
"""

import json
import plistlib
import re

import pytest

from h2o_pack.spec import CacheSpec, DeliverySpec
from tests.bridge.openstep import read_openstep
from tests.bridge.plans import plan_of, rendered

PROJECT = "App/My_App 2.xcodeproj/project.pbxproj"
OBJECT = re.compile(r"[0-9A-F]{24}")
LAYOUTS = {
    "in the app": DeliverySpec(),
    "asset pack": DeliverySpec(asset_pack=True),
    "download": DeliverySpec(download="https://models.example.com/chat/1"),
}


@pytest.fixture(params=LAYOUTS)
def layout(request):
    return request.param


@pytest.fixture
def files(model, layout):
    return rendered(plan_of(model, CacheSpec(max_kv=512), "My_App 2", delivery=LAYOUTS[layout]))


@pytest.fixture
def project(files):
    return read_openstep(files[PROJECT])


@pytest.fixture
def objects(project):
    return project["objects"]


def of_kind(objects, kind: str) -> list[dict]:
    return [entry for entry in objects.values() if entry["isa"] == kind]


def references(value) -> set[str]:
    if isinstance(value, str):
        return {value} if OBJECT.fullmatch(value) else set()
    parts = value.values() if isinstance(value, dict) else value
    return set().union(*map(references, parts))


def test_every_object_of_the_project_exists_and_is_used(project, objects):
    assert all(OBJECT.fullmatch(name) for name in objects)
    assert references(list(objects.values())) | {project["rootObject"]} == set(objects)


def test_it_links_products_of_the_package_around_it(objects, files):
    products = {
        entry["productName"] for entry in of_kind(objects, "XCSwiftPackageProductDependency")
    }
    assert {"H2OSessions", "MyApp_2Model"} <= products
    for name in products:
        assert f'.library(name: "{name}"' in files["Package.swift"]


def test_its_settings_name_files_that_exist(objects, files, layout):
    settings = [
        entry["buildSettings"]
        for entry in of_kind(objects, "XCBuildConfiguration")
        if "INFOPLIST_FILE" in entry["buildSettings"]
    ]
    identifiers = {setting["PRODUCT_BUNDLE_IDENTIFIER"] for setting in settings}
    extension = {"org.example.My-App-2.Downloader"} if layout == "asset pack" else set()
    assert identifiers == {"org.example.My-App-2"} | extension
    assert {setting.get("PRODUCT_NAME") for setting in settings} >= {"My_App-2"}
    for setting in settings:
        assert f"App/{setting['INFOPLIST_FILE']}" in files
        assert f"App/{setting['CODE_SIGN_ENTITLEMENTS']}" in files


@pytest.mark.parametrize("layout", ["asset pack"], indirect=True)
def test_app_and_extension_share_the_app_group_that_the_app_declares(files):
    declared = plistlib.loads(files["App/Info.plist"].encode())
    for name in ("Chat", "Downloader"):
        entitlements = plistlib.loads(files[f"App/{name}.entitlements"].encode())
        groups = entitlements["com.apple.security.application-groups"]
        assert groups == [declared["BAAppGroupID"]]


@pytest.mark.parametrize("name", ["MLX", "H2OKit", "Numerics"])
def test_an_app_named_like_a_module_of_the_package_is_another_module(model, name):
    files = rendered(plan_of(model, CacheSpec(512), name))
    objects = read_openstep(files[f"App/{name}.xcodeproj/project.pbxproj"])["objects"]
    for entry in of_kind(objects, "XCBuildConfiguration"):
        settings = entry["buildSettings"]
        if "PRODUCT_NAME" in settings:
            assert settings["PRODUCT_NAME"] == name
            assert settings["PRODUCT_MODULE_NAME"] == "H2OChatApp"


def test_the_name_below_the_icon_is_the_one_given_in_any_script(model):
    files = rendered(plan_of(model, CacheSpec(512), "Mein \u00d6rtchen & <Co>"))
    info = plistlib.loads(files["App/Info.plist"].encode("ascii"))
    assert info["CFBundleDisplayName"] == "Mein \u00d6rtchen & <Co>"
    assert info["CFBundleName"] == "$(PRODUCT_NAME)"


TEXTS = re.compile(
    r"""(?:Text|Toggle|Button|TextField|ProgressView|DisclosureGroup|Label|Menu|Picker"""
    r"""|LabeledContent|navigationTitle|alert|(?<!Attributed)String)\((?:localized:)?\s*"((?:[^"\\]|\\.)*)\""""
    r"""|accessibilityLabel\([^"\n]*"((?:[^"\\]|\\.)*)"(?:\s*:\s*"((?:[^"\\]|\\.)*)")?"""
)
VALUE = re.compile(r"\\\((?:[^()]|\([^()]*\))*\)")
PLACEHOLDER = re.compile(r"%(?:@|lld)")


def test_every_text_that_a_user_sees_is_in_the_string_catalog(files):
    views = [text for name, text in files.items() if re.match(r"App/Chat/.*\.swift", name)]
    visible = {
        VALUE.sub("%", text)
        for view in views
        for match in TEXTS.findall(view.partition("#Preview")[0])
        for text in match
        if text
    }
    catalog = json.loads(files["App/Chat/Localizable.xcstrings"])
    assert catalog["sourceLanguage"] == "en"
    assert {PLACEHOLDER.sub("%", key) for key in catalog["strings"]} == visible


@pytest.mark.parametrize("layout", ["in the app"], indirect=True)
def test_links_of_a_reply_open_only_after_their_address_was_shown(files):
    """ChatTests says which addresses a `ReplyLink` has; here, only it is opened."""
    views = {name: text for name, text in files.items() if re.match(r"App/.*\.swift", name)}
    parsing = [name for name, text in views.items() if "AttributedString(markdown" in text]
    assert parsing == ["App/Chat/MarkdownText.swift"]
    text = views[parsing[0]]
    handler = text.partition("OpenURLAction { url in")[2].partition("}")[0]
    assert handler.split() == [
        *("link", "=", "ReplyLink(url)"),
        *("return", "link", "==", "nil", "?", ".discarded", ":", ".handled"),
    ]
    asked = text.partition('.alert("Open this page?"')[2].partition("private var")[0]
    assert "(link.host)" in asked
    assert "(link.address)" in asked
    assert asked.count("openURL(link.url)") == text.count("openURL(") == 1
    assert not any("openURL" in other for name, other in views.items() if name != parsing[0])


@pytest.mark.parametrize(
    "text", ["{", "{a = 1}", "(a b", "{a 1;}", "{a = 1; a = 2;}", "é", "{} x", ")"]
)
def test_the_reader_of_projects_refuses_what_is_no_property_list(text):
    with pytest.raises((ValueError, IndexError)):
        read_openstep(text)
