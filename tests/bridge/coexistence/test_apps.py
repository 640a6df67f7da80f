"""Apps of many shapes, to which a package is added: SwiftPM resolves and builds them."""

import dataclasses
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from h2o_pack.facts import Pin, coexistence, pins
from h2o_pack.models.files import from_folder
from h2o_pack.package.build import make_package
from h2o_pack.spec import CacheSpec
from h2o_pack.vendoring import vendor as vendoring
from h2o_pack.vendoring.edits import EditSet, edits_of
from h2o_pack.vendoring.vendor import resolved
from tests.bridge.coexistence.packages import (
    LIBRARIES,
    PACKAGES,
    make_repositories,
    manifest,
    mlx_swift_lm,
    product,
    source,
    target,
    url,
)
from tests.bridge.plans import plan_of
from tests.bridge.repositories import git
from tests.bridge.trees import build_tree, write_model
from tests.nightly import nightly_except
from tests.processes import output_of, ran

pytestmark = pytest.mark.swift
IMPORTS = ("MLX", "MLXLLM", "MLXLMCommon", "H2OTokenizers")
SHARED = {package.name for package in coexistence().shared}
LM = url("ml-explore/mlx-swift-lm", 'from: "3.31.0"')


def of_manifests(root: Path) -> EditSet:
    """Return the edits of manifests: the small packages have no other lines to edit."""
    every = edits_of(root)
    return dataclasses.replace(
        every,
        edits=tuple(edit for edit in every.edits if edit.file == "Package.swift"),
        files=tuple(file for file in every.files if file.destination == "Package.swift"),
        copies=tuple(map(small, every.copies)),
        guards=(),
    )


def small(copy):
    """Return what to copy of a small package: not single files of MLX."""
    return dataclasses.replace(copy, paths=tuple(p for p in copy.paths if p.count("/") < 2))


def package_with_vendor(folder: Path, *, offline: bool) -> Path:
    """Make a package that stands on small ones, with the real edits of their manifests."""
    model = from_folder("tiny", write_model(folder / "tiny"))
    plan = plan_of(model, CacheSpec(max_kv=512), "Chat")
    package = make_package(plan, folder / "Chat").folder
    upstream = folder / "upstream"
    for path, (files, _) in PACKAGES.items():
        build_tree(upstream / path.rpartition("/")[2], files)
    build_tree(upstream / "mlx-swift-lm", mlx_swift_lm())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vendoring, "edits_of", of_manifests)
        vendoring.vendor(package, upstream, "apple", offline=offline)
    return package


@pytest.mark.parametrize("offline", nightly_except([True], [True, False]))
def test_all_libraries_of_upstream_stay_and_macros_where_they_can_be_built(tmp_path, offline):
    package = package_with_vendor(tmp_path, offline=offline)
    command = ["swift", "package", "dump-package", "--package-path"]
    document = json.loads(output_of(*command, package / "Vendor/mlx-swift-lm"))
    missing = {"MLXHuggingFace"} if offline else set()
    libraries = set(LIBRARIES)
    assert {entry["name"] for entry in document["products"]} == libraries - missing
    assert {target["type"] for target in document["targets"]} == {"regular"} | (
        set() if offline else {"macro"}
    )
    assert len(document["dependencies"]) == (1 if offline else 2)


class Apps:
    """Apps beside one package, and the repositories that stand for upstream's."""

    def __init__(self, folder: Path, *, offline: bool) -> None:
        self.folder = folder
        self.config = make_repositories(folder / "repositories")
        self.package = package_with_vendor(folder, offline=offline)
        for name, imports in (("H2OKit", IMPORTS), ("ChatModel", ("H2OKit", "MLXLMCommon"))):
            sources = self.package / "Sources" / name
            for path in sorted(sources.rglob("*.swift")):  # resources stay
                path.unlink()
            build_tree(sources, {"A.swift": source(name, *imports)})

    def swift(
        self, folder: Path, command: str, *arguments: str, scratch: str = "scratch"
    ) -> subprocess.CompletedProcess[str]:
        """Run SwiftPM with all its settings and caches in a folder of the test."""
        private = {name: self.folder / name for name in ("cache", "security")}
        private["scratch"] = self.folder / scratch
        places = {"package": folder, "config": self.config, **private}
        options = [f"--{name}-path={path}" for name, path in places.items()]
        settings = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull}
        words = [command, *options, "--disable-sandbox", *arguments]
        return ran("swift", *words, env=settings)

    def app(self, name: str, *dependencies: str, products: dict[str, str]) -> Path:
        """Write an app that imports products and has the package beside what it depends on."""
        needs = [product("H2OKit", "Chat"), *(product(*entry) for entry in products.items())]
        text = manifest(
            name,
            {},
            [*dependencies, '.package(path: "../Chat")'],
            [target(name, *needs, kind="executableTarget")],
            "6.1",
        )
        imports = "".join(f"import {module}\n" for module in ("H2OKit", *products))
        files = {
            "Package.swift": text,
            f"Sources/{name}/main.swift": imports + 'print("ran")\n',
        }
        return build_tree(self.folder / name, files)

    def pin(self, name: str) -> Pin:
        """Return a pin with the commit of the small package."""
        [path] = [path for path in PACKAGES if path.endswith(f"/{name}")]
        pin = pins()[name]
        commit = git(self.folder / "repositories" / path, "rev-parse", pin.version)
        return dataclasses.replace(pin, commit=commit)

    def builds(self, app: Path) -> str:
        """Build an app, check that it runs, and return what SwiftPM said."""
        quick = ("--disable-index-store", "-debug-info-format", "none")
        build = self.swift(app, "build", "--disable-experimental-prebuilts", *quick)
        assert build.returncode == 0, build.stdout + build.stderr
        assert output_of(self.folder / "scratch/debug" / app.name) == "ran\n"
        return build.stdout + build.stderr


@pytest.fixture(scope="module")
def apps(tmp_path_factory) -> Apps:
    return Apps(tmp_path_factory.mktemp("apps"), offline=False)


@pytest.mark.nightly("test_alone_the_versions_are_those_that_the_package_was_tested_with")
def test_beside_swift_transformers_and_another_version_of_swift_collections(apps):
    app = apps.app(
        "Transformers",
        url("huggingface/swift-transformers", 'from: "1.0.0"'),
        url("apple/swift-collections", 'exact: "1.4.1"'),
        products={
            "Tokenizers": "swift-transformers",
            "OrderedCollections": "swift-collections",
        },
    )
    output = apps.builds(app)
    assert "Conflicting identity" not in output
    assert "Compiling MLXLLM" in output
    assert "Macros" not in output
    resolution = (app / "Package.resolved").read_text()
    assert '"1.4.1"' in resolution
    assert '"1.2.1"' not in resolution


@pytest.mark.nightly("test_alone_the_versions_are_those_that_the_package_was_tested_with")
def test_beside_mlx_swift_lm_by_address_all_of_it_uses_the_edited_copy(apps):
    libraries = ("MLXVLM", "MLXEmbedders", "MLXHuggingFace")
    app = apps.app(
        "Address",
        LM,
        url("ml-explore/mlx-swift", '.upToNextMinor(from: "0.31.0")'),
        products={**dict.fromkeys(libraries, "mlx-swift-lm"), "MLXNN": "mlx-swift"},
    )
    output = apps.builds(app)
    for name in ("mlx-swift", "mlx-swift-lm"):
        assert f"Conflicting identity for {name}: " in output
        assert not (apps.folder / "scratch/checkouts" / name).exists()


def test_alone_the_versions_are_those_that_the_package_was_tested_with(apps):
    tested_pins = {name: apps.pin(name) for name in SHARED}
    path = build_tree(apps.package, {"Package.resolved": resolved(tested_pins, SHARED)})
    arguments = ("package", "show-dependencies", "--format", "json")
    result = apps.swift(path, *arguments, scratch="another")
    assert versions(json.loads(result.stdout)) == {n: pins()[n].version for n in SHARED}
    assert (path / "Package.resolved").read_text() == resolved(tested_pins, SHARED)


def versions(package) -> dict[str, str]:
    """Return what was chosen below a package."""
    by_name = {}
    for dependency in package["dependencies"]:
        by_name |= versions(dependency)
        if dependency["identity"] in SHARED:
            by_name[dependency["identity"]] = dependency["version"]
    return by_name


@pytest.mark.nightly("test_alone_the_versions_are_those_that_the_package_was_tested_with")
def test_offline_nothing_is_fetched(tmp_path):
    apps = Apps(tmp_path, offline=True)
    shutil.rmtree(apps.folder / "repositories/apple")
    app = apps.app("Offline", products={})
    assert "etch" not in apps.builds(app)
    assert not (app / "Package.resolved").exists()
