from __future__ import annotations

import platform
from types import SimpleNamespace

from h2o_pack.doctor.surroundings import Surroundings
from h2o_pack.doctor.tool import ToolResult
from h2o_pack.measure import footprint
from h2o_pack.measure.footprint import LARGEST, largest_footprint
from h2o_pack.prove import machine
from h2o_pack.prove.machine import describe, versions
from h2o_py._pins import VERSIONS

SAID = {
    ("sysctl", "-n", "hw.model"): "Mac15,3",
    ("swift", "--version"): "Apple Swift version 6.3.1 (swiftlang-6.3.1.1)",
    ("xcodebuild", "-version"): "Xcode 26.1\nBuild version 17B55",
}


def on_a_mac(monkeypatch):
    def run(_self, *command):
        return ToolResult(0, SAID[command]) if command in SAID else None

    monkeypatch.setattr(Surroundings, "run", run)
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(platform, "mac_ver", lambda: ("26.1", ("", "", ""), "arm64"))
    monkeypatch.setattr(machine, "processor", lambda: "Apple M3")


def test_a_mac_is_described_by_its_model_and_system(monkeypatch):
    on_a_mac(monkeypatch)
    found = describe()
    assert (found.identifier, found.chip) == ("Mac15,3", "Apple M3")
    assert (found.system, found.system_version) == ("macOS", "26.1")
    assert found.memory_bytes > 10**9


def test_a_report_names_no_machine_and_no_user(monkeypatch):
    monkeypatch.setattr(platform, "node", lambda: "secret")
    assert "secret" not in str(describe())


def test_versions_are_those_of_the_installed_packages_and_tools(monkeypatch):
    on_a_mac(monkeypatch)
    found = versions()
    assert found.items() >= VERSIONS.items()
    assert (found["swift"], found["xcode"]) == ("6.3.1", "26.1")


def test_the_footprint_is_that_of_a_process():
    assert 10**7 < largest_footprint() < describe().memory_bytes


def test_a_mac_is_asked_for_the_largest_footprint(monkeypatch):
    def proc_pid_rusage(_process, version, usage):
        assert version == 4
        usage._obj[LARGEST : LARGEST + 8] = (123_456_789).to_bytes(8, "little")
        return 0

    library = SimpleNamespace(proc_pid_rusage=proc_pid_rusage)
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(footprint.ctypes, "CDLL", lambda *_args, **_options: library)
    assert largest_footprint() == 123_456_789
