from __future__ import annotations

from pathlib import Path

import pytest

from h2o_pack import assets
from h2o_pack.errors import ExitCode
from tests.bridge.refusals import refused
from tests.messages import says


def test_the_assets_hold_all_that_a_package_needs():
    root = assets.root()
    for name in (
        "Package.swift.j2",
        "swift_templates/H2OKit",
        "cexport/h2o",
        "cexport/c/h2o.h",
    ):
        assert (root / name).exists(), name


def test_a_wheel_finds_its_own_assets_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    package = tmp_path / "site-packages" / "h2o_pack"
    (package / "_assets").mkdir(parents=True)
    (package / "_assets" / assets.MARKER).touch()
    monkeypatch.setattr(assets, "__file__", str(package / "assets.py"))
    assert assets.root() == package / "_assets"


def test_a_broken_installation_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(assets, "__file__", str(tmp_path / "a" / "b" / "assets.py"))
    says(refused(assets.root, code=ExitCode.INTERNAL))
