"""What `ios --proof` adds to a package, and what a package without it lacks."""

import json
import re
from dataclasses import fields, replace
from pathlib import Path

import pytest

from h2o_pack import __version__
from h2o_pack.hub.resolve import resolve
from h2o_pack.package import proof
from h2o_pack.package.render import planned_bytes, proof_versions
from h2o_pack.parity import op
from h2o_pack.parity.trace import Case, Trace
from h2o_pack.spec import CacheSpec
from h2o_py import H2OConfig
from h2o_py.storages import STORAGE_BITS
from tests.bridge.plans import plan_of

OF_A_PROOF = re.compile(r"proof|Traces|Prove it", re.IGNORECASE)


def texts(package: Path) -> dict[str, str]:
    suffixes = {".swift", ".json", ".xcstrings", ".md", ".pbxproj"}
    paths = [path for path in package.rglob("*") if path.suffix in suffixes]
    return {path.relative_to(package).as_posix(): path.read_text("utf-8") for path in paths}


def test_an_ordinary_package_has_nothing_of_a_proof(ios, tmp_path):
    ios()
    files = texts(tmp_path / "Demo")
    lock = json.loads(files.pop("h2o-pack.lock.json"))
    assert not [path for path in {*files, *lock["files"]} if OF_A_PROOF.search(path)]
    assert not [path for path, text in files.items() if "H2OProof" in text or "Traces" in text]


def test_an_update_keeps_the_proof(ios, run, tmp_path):
    package = tmp_path / "Demo"
    ios("--proof")
    before = texts(package)
    for part in ("Sources/H2OSessions/Proof/H2OProof.swift", "App/Chat/ProofView.swift"):
        assert part in before
    assert "ProofButton(chat: chat" in before["App/Chat/ChatApp.swift"]
    assert run("update", package).exit_code == 0
    assert texts(package).keys() == before.keys()


@pytest.mark.filterwarnings("error::h2o_py.errors.H2OConfigWarning")
def test_its_few_rows_are_no_warning():
    plan = plan_of(resolve("demo"), CacheSpec(max_kv=64)).models[0]
    assert proof.with_few_rows(plan.cache).max_size == proof.ROWS


@pytest.mark.parametrize("recall", [False, True])
@pytest.mark.parametrize("kv", STORAGE_BITS)
def test_no_rounding_decides_what_the_trace_keeps(tmp_path, kv, recall):
    plan = plan_of(resolve("demo"), CacheSpec(max_kv=64, kv=kv, recall=recall))
    prefix = "Sources/DemoModel/Traces/Model/"
    files = {path: content for path, content in proof.traces(plan).items() if prefix in path}
    if STORAGE_BITS[kv].rotated:
        assert not files
        return
    for path, content in files.items():
        file = tmp_path / path.removeprefix(prefix)
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(content)
    [case] = json.loads((tmp_path / "trace.json").read_text("utf-8"))["cases"]
    names = {field.name for field in fields(Case)}
    recording = Case(**{name: value for name, value in case.items() if name in names})
    recording = replace(recording, config=H2OConfig.from_dict(case["config"]))
    result = op.compare(Trace(tmp_path, ()), recording)
    assert result.equal, result.first_difference
    assert not result.ties
    assert len(case["steps"]) > 10
    size = sum(file.stat().st_size for file in tmp_path.rglob("*.safetensors"))
    assert size < 250_000


def test_the_planned_bytes_and_versions_are_the_packages(tmp_path):
    [model] = plan_of(resolve("demo"), CacheSpec(max_kv=64)).models
    phone = planned_bytes(model)["phone"]
    assert phone["MLX"] == model.memory_of["phone"].mlx > phone["weights"] > 0
    assert phone["total"] == model.memory_of["phone"].total
    versions = {"h2o-pack": __version__, "mlx-swift": "0.31.6"}
    assert proof_versions().items() >= versions.items()
