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


def project(*references: str, target: str = "App") -> dict[str, str]:
    """Return the files of an Xcode project that refers to packages."""
    objects = [f'T = {{isa = PBXNativeTarget; name = "{target}";}};']
    objects += [f"R{number} = {{{reference}}};" for number, reference in enumerate(references)]
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


def findings_of(folder: Path, files: dict[str, str]) -> dict[str, tuple]:
    checkup = check_app(build_tree(folder / "app", files))
    schemas.check(checkup, "doctor")
    return {
        finding.name: (finding.status, finding.what, finding.remedy)
        for finding in checkup.findings
    }


@pytest.mark.parametrize(
    ("requirement", "status", "text"),
    [
        ({"kind": "upToNextMajorVersion", "minimumVersion": "3.31.0"}, "warning", "This works"),
        ({"kind": "upToNextMinorVersion", "minimumVersion": "3.31.4"}, "warning", "This works"),
        ({"kind": "exactVersion", "version": "3.31.4"}, "warning", "This works"),
        ({"kind": "branch", "branch": "main"}, "warning", "This works"),
        ({"kind": "revision", "revision": "0" * 40}, "warning", "This works"),
        (
            {"kind": "upToNextMajorVersion", "minimumVersion": "2.29.1"},
            "problem",
            "2.29.1 ..< 3",
        ),
        ({"kind": "upToNextMinorVersion", "minimumVersion": "3.32.0"}, "problem", "..< 3.33.0"),
        ({"kind": "exactVersion", "version": "3.31.3"}, "problem", "requires 3.31.3"),
        (
            {"kind": "versionRange", "minimumVersion": "3.0.0", "maximumVersion": "3.31.4"},
            "problem",
            "3.0.0 ..< 3.31.4",
        ),
    ],
)
def test_a_project_that_uses_mlx_swift_lm_gets_the_edited_copy(
    tmp_path, requirement, status, text
):
    findings = findings_of(tmp_path, project(remote(LM, **requirement)))
    assert findings["mlx-swift-lm"][0] == status
    assert (
        f"the package's edited copy of {pinned()['mlx-swift-lm'].version}"
        in findings["mlx-swift-lm"][1]
    )
    assert text in " ".join(findings["mlx-swift-lm"])


@pytest.mark.parametrize(("version", "status"), [("3.31.3", "warning"), ("2.30.6", "problem")])
def test_what_a_dependency_brings_is_read_from_the_resolved_versions(tmp_path, version, status):
    files = project(remote(f"{GITHUB}/huggingface/AnyLanguageModel", kind="branch", branch="x"))
    findings = findings_of(tmp_path, files | {RESOLVED: pins(mlx_swift_lm=version)})
    assert findings["mlx-swift-lm"][0] == status
    assert "Vendor/mlx-swift-lm" not in findings["mlx-swift-lm"][2]


def test_one_version_of_a_library_serves_both_or_none_does(tmp_path):
    collections = remote(
        f"{GITHUB}/apple/swift-collections.git", kind="exactVersion", version="1.4.0"
    )
    jinja = remote(
        f"{GITHUB}/huggingface/swift-jinja", kind="upToNextMajorVersion", minimumVersion="1.2.0"
    )
    findings = findings_of(tmp_path, project(collections, jinja))
    assert findings["swift-collections"][0] == "ok"
    assert findings["swift-jinja"][:2] == (
        "problem",
        "the app requires 1.2.0 ..< 2.0.0, but the package requires 2.4.2 ..< 3.0.0",
    )


def test_an_older_swift_transformers_brings_a_module_of_the_same_name(tmp_path):
    files = project() | {RESOLVED: pins(jinja="1.3.2", swift_transformers="0.1.24")}
    assert findings_of(tmp_path, files)["jinja"] == (
        "problem",
        "swift-jinja has a module Jinja too",
        "Update swift-transformers, which depends on it, to 1.0.0 or newer.",
    )
    newer = project() | {RESOLVED: pins(swift_jinja="2.4.2", swift_transformers="1.3.3")}
    assert {finding[0] for finding in findings_of(tmp_path, newer).values()} == {"ok"}


def test_a_target_of_the_app_must_not_be_named_like_a_module(tmp_path):
    findings = findings_of(tmp_path, project(target="H2OKit"))
    assert findings["H2OKit"][0] == "problem"
    assert "Rename" in findings["H2OKit"][2]


def test_packages_of_ours_are_known_by_their_locks(tmp_path):
    build_tree(tmp_path, {f"{name}/h2o-pack.lock.json": "{}" for name in ("Chat", "Other")})
    app = project(local("../Chat"), local("../Chat/Vendor/mlx-swift"))
    findings = findings_of(tmp_path, app)
    assert {name: finding[0] for name, finding in findings.items()} == {
        "chat": "ok",
        "mlx-swift": "ok",
    }
    findings = findings_of(tmp_path, project(local("../Chat"), local("../Other")))
    assert findings["other"][0] == "problem"
    assert "both have the module H2OKit" in findings["other"][1]


def test_the_generated_app_has_its_package():
    checkup = check_app(GOLDEN / "demo/App")
    [finding] = checkup.findings
    assert (finding.name, finding.status) == ("demo", "ok")
    assert checkup.read == ("demo.xcodeproj/project.pbxproj",)


def test_another_copy_of_mlx_swift_in_a_folder_lacks_the_edits(tmp_path):
    findings = findings_of(tmp_path, project(local("../mlx-swift")))
    assert findings["mlx-swift"][0] == "problem"
    assert f"{tmp_path}/mlx-swift, which lacks the edits" in findings["mlx-swift"][1]


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
    targets: [.executableTarget(name: "App"), .target(name: "Jinja")],
    swiftLanguageModes: [.v5])
fatalError("this is a program")
"""


def test_a_manifest_is_read_and_not_run(tmp_path):
    findings = findings_of(tmp_path, {"Package.swift": MANIFEST})
    assert {name: finding[0] for name, finding in findings.items()} == {
        "Jinja": "problem",
        "Package.swift": "problem",
        "mlx-swift-lm": "warning",
        "mlx-swift": "warning",
        "swift-syntax": "problem",
        "swift-numerics": "ok",
    }
    says(". ".join(findings["Package.swift"][1:]))
    assert "509.0.0 ..< 510.0.0" in findings["swift-syntax"][1]


def test_a_language_that_the_compiler_does_not_build_is_a_problem(tmp_path):
    for mode, count in (("3.0", 1), ("5.0", 0), ("6.0", 0)):
        findings = findings_of(tmp_path, project(configuration(SWIFT_VERSION=mode)))
        assert len(findings) == count
    swift = 'let package = Package(name: "A", swiftLanguageVersions: [.version("3")])'
    [(status, what, _)] = findings_of(tmp_path, {"Package.swift": swift}).values()
    assert (status, "Swift 3" in what) == ("problem", True)


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
    findings = findings_of(tmp_path, project() | {name: text})
    assert list(findings) == [name]
    assert "not read" in findings[name][1]


def test_the_first_form_of_resolved_versions_is_read(tmp_path):
    old = {"repositoryURL": f"{GITHUB}/ml-explore/mlx-swift", "state": {"version": "0.31.6"}}
    files = project() | {"Package.resolved": json.dumps({"object": {"pins": [old]}})}
    assert findings_of(tmp_path, files)["mlx-swift"][0] == "warning"


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
    assert document["collides"] == bool(code)
    assert document["read"] == [PROJECT]


def configuration(**settings: str) -> str:
    lines = " ".join(f"{name} = {value};" for name, value in settings.items())
    return f"isa = XCBuildConfiguration; buildSettings = {{{lines}}};"


@pytest.mark.parametrize(
    ("settings", "collides"),
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
    tmp_path, settings, collides
):
    findings = findings_of(tmp_path, project(configuration(**settings)))
    assert ([status for status, _, _ in findings.values()] == ["problem"]) == collides


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
