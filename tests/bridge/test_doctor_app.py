"""What `doctor APP` reads of an app, and what it says collides."""

import json
import re
from pathlib import Path

import pytest

from h2o_pack import assets
from h2o_pack.doctor.app import SYSTEMS, check_app
from h2o_pack.doctor.machine import needed
from h2o_pack.errors import ExitCode
from h2o_pack.facts import pins as pinned
from tests.bridge import schemas
from tests.bridge.trees import build_tree
from tests.messages import refused, says

GITHUB = "https://github.com"
LM = f"{GITHUB}/ml-explore/mlx-swift-lm.git"
GOLDEN = Path(__file__).parents[1] / "golden"
PROJECT = "App.xcodeproj/project.pbxproj"
RESOLVED = "App.xcodeproj/project.xcworkspace/xcshareddata/swiftpm/Package.resolved"


def project(*references: str) -> dict[str, str]:
    """Return the files of an Xcode project that refers to packages."""
    objects = [f"R{number} = {{{reference}}};" for number, reference in enumerate(references)]
    return {PROJECT: f"// !$*UTF8*$!\n{{objects = {{{' '.join(objects)}}};}}\n"}


def remote(url: str, **requirement: str) -> str:
    limits = " ".join(f'{name} = "{value}";' for name, value in requirement.items())
    kind = "XCRemoteSwiftPackageReference"
    return f'isa = {kind}; repositoryURL = "{url}"; requirement = {{{limits}}};'


def local(path: Path | str) -> str:
    return f'isa = XCLocalSwiftPackageReference; relativePath = "{path}";'


def pins(**versions: str) -> str:
    """Return Package.resolved of packages, `_` being written for `-`."""
    packages = [
        {
            "location": f"{GITHUB}/x/{name.replace('_', '-')}",
            "state": {"revision": "0" * 40, "version": version},
        }
        for name, version in versions.items()
    ]
    return json.dumps({"pins": packages, "version": 3})


def conflicts(folder: Path, files: dict[str, str]) -> dict[str, tuple[str, str]]:
    """Return what is wrong in an app of these files, by name, and what to do."""
    checkup = check_app(build_tree(folder / "app", files))
    schemas.check(checkup, "doctor")
    return {
        finding.name: (finding.what, finding.remedy)
        for finding in checkup.findings
        if finding.blocks
    }


@pytest.mark.parametrize(
    "requirement",
    [
        {"kind": "upToNextMajorVersion", "minimumVersion": "3.31.0"},
        {"kind": "upToNextMinorVersion", "minimumVersion": "3.31.4"},
        {"kind": "exactVersion", "version": "3.31.4"},
        {"kind": "branch", "branch": "main"},
        {"kind": "revision", "revision": "0" * 40},
    ],
)
def test_a_project_that_allows_the_version_of_the_edited_copy_has_no_conflict(
    tmp_path, requirement
):
    assert conflicts(tmp_path, project(remote(LM, **requirement))) == {}


@pytest.mark.parametrize(
    ("requirement", "text"),
    [
        ({"kind": "upToNextMajorVersion", "minimumVersion": "2.29.1"}, "2.29.1 ..< 3"),
        ({"kind": "upToNextMinorVersion", "minimumVersion": "3.32.0"}, "..< 3.33.0"),
        ({"kind": "exactVersion", "version": "3.31.3"}, "requires 3.31.3"),
        (
            {"kind": "versionRange", "minimumVersion": "3.0.0", "maximumVersion": "3.31.4"},
            "3.0.0 ..< 3.31.4",
        ),
    ],
)
def test_a_project_that_requires_another_mlx_swift_lm_has_a_conflict(
    tmp_path, requirement, text
):
    what, _ = conflicts(tmp_path, project(remote(LM, **requirement)))["mlx-swift-lm"]
    assert f"the package's edited copy of {pinned()['mlx-swift-lm'].version}" in what
    assert text in what


@pytest.mark.parametrize(("version", "names"), [("3.31.3", []), ("2.30.6", ["mlx-swift-lm"])])
def test_what_a_dependency_brings_is_read_from_the_resolved_versions(tmp_path, version, names):
    files = project(remote(f"{GITHUB}/huggingface/AnyLanguageModel", kind="branch", branch="x"))
    files |= {RESOLVED: pins(mlx_swift_lm=version)}
    assert list(conflicts(tmp_path, files)) == names


def test_one_version_of_a_library_serves_both_or_none_does(tmp_path):
    collections = remote(
        f"{GITHUB}/apple/swift-collections.git", kind="exactVersion", version="1.4.0"
    )
    jinja = remote(
        f"{GITHUB}/huggingface/swift-jinja", kind="upToNextMajorVersion", minimumVersion="1.2.0"
    )
    [(name, (what, _))] = conflicts(tmp_path, project(collections, jinja)).items()
    assert name == "swift-jinja"
    assert what == "the app requires 1.2.0 ..< 2.0.0, but the package requires 2.4.2 ..< 3.0.0"


def test_an_older_swift_transformers_brings_a_module_of_the_same_name(tmp_path):
    files = project() | {RESOLVED: pins(jinja="1.3.2", swift_transformers="0.1.24")}
    assert conflicts(tmp_path, files)["jinja"] == (
        "swift-jinja has a module Jinja too",
        "Update swift-transformers, which depends on it, to 1.0.0 or newer.",
    )
    newer = project() | {RESOLVED: pins(swift_jinja="2.4.2", swift_transformers="1.3.3")}
    assert conflicts(tmp_path, newer) == {}


def test_packages_of_ours_are_known_by_their_locks(tmp_path):
    build_tree(tmp_path, {f"{name}/h2o-pack.lock.json": "{}" for name in ("Chat", "Other")})
    app = project(local("../Chat"), local("../Chat/Vendor/mlx-swift"))
    assert conflicts(tmp_path, app) == {}
    findings = conflicts(tmp_path, project(local("../Chat"), local("../Other")))
    assert list(findings) == ["other"]
    assert "both have the module H2OKit" in findings["other"][0]


def test_the_generated_app_has_no_conflict_with_its_package():
    [finding] = check_app(GOLDEN / "demo/App").findings
    assert (finding.name, finding.status) == ("demo.xcodeproj/project.pbxproj", "ok")


def test_another_copy_of_mlx_swift_in_a_folder_lacks_the_edits(tmp_path):
    findings = conflicts(tmp_path, project(local("../mlx-swift")))
    assert f"{tmp_path}/mlx-swift, which lacks the edits" in findings["mlx-swift"][0]


MANIFEST = f"""// swift-tools-version: 6.0
import PackageDescription
let package = Package(
    name: "App",
    platforms: [.iOS(.v16), .macOS(.v14)],
    dependencies: [
        .package(url: "{LM}", .upToNextMinor(from: "3.31.0")),
        .package(name: "mlx", url: "{GITHUB}/ml-explore/mlx-swift", from: "0.20.0"),
        .package(url: "{GITHUB}/swiftlang/swift-syntax", "509.0.0"..<"510.0.0"),
        .package(url: "{GITHUB}/apple/swift-numerics", exact: "1.0.2"),
        // .package(url: "{GITHUB}/johnmai-dev/jinja", from: "1.0.0"),
    ],
    targets: [.executableTarget(name: "App")],
    swiftLanguageModes: [.v5])
fatalError("this is a program")
"""


def test_a_manifest_is_read_and_not_run(tmp_path):
    findings = conflicts(tmp_path, {"Package.swift": MANIFEST})
    assert list(findings) == ["Package.swift", "swift-syntax"]
    says(". ".join(findings["Package.swift"]))
    assert "509.0.0 ..< 510.0.0" in findings["swift-syntax"][0]


def test_a_language_that_the_compiler_does_not_build_is_a_problem(tmp_path):
    for mode, count in (("3.0", 1), ("5.0", 0), ("6.0", 0)):
        findings = conflicts(tmp_path, project(configuration(SWIFT_VERSION=mode)))
        assert len(findings) == count
    swift = 'let package = Package(name: "A", swiftLanguageVersions: [.version("3")])'
    [(what, _)] = conflicts(tmp_path, {"Package.swift": swift}).values()
    assert "Swift 3" in what


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (PROJECT, "{"),
        (PROJECT, "(" * 100_000),
        (RESOLVED, '{"pins": 1}'),
        (RESOLVED, '{"pins": [{"state": {}}], "object": []}'),
        (RESOLVED, "[" * 100_000),
    ],
)
def test_a_file_that_is_not_as_xcode_writes_it_is_told(tmp_path, name, text):
    findings = conflicts(tmp_path, project() | {name: text})
    assert list(findings) == [name]
    assert "not read" in findings[name][0]


def test_the_first_form_of_resolved_versions_is_read(tmp_path):
    old = {"repositoryURL": f"{GITHUB}/ml-explore/mlx-swift", "state": {"version": "1.0.0"}}
    files = project() | {"Package.resolved": json.dumps({"object": {"pins": [old]}})}
    assert list(conflicts(tmp_path, files)) == ["mlx-swift"]


def test_a_folder_that_is_no_app_is_refused(tmp_path, run):
    says(refused(check_app, tmp_path, code=ExitCode.USAGE))
    for folder in (tmp_path, tmp_path / "none"):
        result = run("doctor", folder)
        assert result.exit_code == ExitCode.USAGE == 2
        assert "Give the folder" in result.stderr


@pytest.mark.parametrize(("version", "code"), [("3.31.4", 0), ("2.0.0", 1)])
def test_the_exit_code_says_whether_something_collides(run, tmp_path, version, code):
    dependency = remote(LM, kind="exactVersion", version=version)
    folder = build_tree(tmp_path / "app", project(dependency))
    result = run("doctor", folder / "App.xcodeproj")
    assert result.exit_code == code
    verb = "cannot be added to this app until" if code else "can be added to this app"
    assert verb in result.output
    document = json.loads(run("doctor", folder, "--json").stdout)
    assert document["blocked"] == bool(code)
    assert document["findings"][0]["name"] == PROJECT


def configuration(**settings: str) -> str:
    lines = " ".join(f"{name} = {value};" for name, value in settings.items())
    return f"isa = XCBuildConfiguration; buildSettings = {{{lines}}};"


@pytest.mark.parametrize(
    ("settings", "is_refused"),
    [
        ({"IPHONEOS_DEPLOYMENT_TARGET": "15.0"}, True),
        ({"IPHONEOS_DEPLOYMENT_TARGET": "17.0"}, False),
        ({"IPHONEOS_DEPLOYMENT_TARGET": "26.0"}, False),
        ({"MACOSX_DEPLOYMENT_TARGET": "13.5"}, True),
        ({"SWIFT_VERSION": "5.0"}, False),
        ({"IPHONEOS_DEPLOYMENT_TARGET": '"$(OLDEST)"'}, False),
    ],
)
def test_a_project_for_older_systems_than_the_package_is_a_problem(
    tmp_path, settings, is_refused
):
    findings = conflicts(tmp_path, project(configuration(**settings)))
    assert (list(findings) == [PROJECT]) == is_refused


def test_the_oldest_systems_are_those_of_the_generated_manifest():
    manifest = (assets.root() / "Package.swift.j2").read_text("utf-8")
    declared = dict(re.findall(r"\.(iOS|macOS)\(\.v(\d+)\)", manifest))
    least = {name: needed(requirement) for name, requirement in SYSTEMS.values()}
    assert declared == {name: version.removesuffix(".0") for name, version in least.items()}


@pytest.mark.parametrize("path", ["a\0b", "loop", "loop/x", "a" * 5000, "../" * 2000 + "x"])
def test_a_path_of_a_project_that_no_system_follows_is_no_path(run, tmp_path, path):
    folder = build_tree(tmp_path / "app", project(local(path)))
    (folder / "loop").symlink_to("loop")
    result = run("doctor", folder)
    assert result.exit_code in (ExitCode.OK, ExitCode.DIFFERENT), result.output
    assert "project.pbxproj" in result.output


def test_a_link_to_itself_is_no_folder_of_an_app(run, tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    assert run("doctor", tmp_path / "loop").exit_code == ExitCode.USAGE
