"""The traces in a package: made for its settings, and kept while these stay."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from h2o_pack.files import lock
from h2o_pack.hub.resolve import resolve
from h2o_pack.package import traces
from h2o_pack.package.several import together
from h2o_pack.plan.package_plan import CacheOptions, make_plan

TRACE = "Sources/DemoModel/Traces/Model.json"


@pytest.fixture
def plan():
    return make_plan(resolve("demo"), CacheOptions(max_kv=64))


def test_a_trace_says_what_it_was_made_for(plan):
    [(path, text)] = traces.traces(plan, {}).items()
    assert path == TRACE
    document = json.loads(text)
    assert document["made_for"]["config"] == json.loads(json.dumps(plan.cache.to_dict()))
    assert {case["kv"] for case in document["cases"]} == {"dense"}
    assert text.isascii()


def test_several_models_have_one_each():
    options = CacheOptions(max_kv=64, kv="8")
    both = together([make_plan(resolve(name), options) for name in ("demo", "demo-4bit")])
    made = traces.traces(both, {})
    assert len(made) == 2
    assert all(f"Sources/{both.module_name}Model/Traces/" in path for path in made)


def test_one_that_was_made_for_the_same_is_kept(plan):
    text = json.dumps({"made_for": traces.made_for(plan), "of": "another processor"})
    assert traces.traces(plan, {TRACE: text}) == {TRACE: text}


def test_other_settings_make_another(plan):
    other = make_plan(resolve("demo"), CacheOptions(max_kv=80))
    text = json.dumps({"made_for": traces.made_for(other)})
    assert traces.traces(plan, {TRACE: text})[TRACE] != text


def test_one_that_somebody_changed_is_made_again(run, tmp_path):
    package = tmp_path / "Demo"
    ios = ("ios", "--model", "demo", "--max-kv", 64, "--output", package, "--no-vendor")
    assert run(*ios).exit_code == 0
    before = (package / TRACE).read_text()
    assert TRACE in lock.read(package).files
    assert set(traces.existing_traces(package)) == {TRACE}
    (package / TRACE).write_text(before.replace('"format": 4', '"format": 5'))
    assert traces.existing_traces(package) == {}
    assert run("update", package).exit_code == 0
    assert (package / TRACE).read_text() == before


def test_making_one_does_not_import_mlx_lm():
    code = "import sys, h2o_pack.parity.short_trace; sys.exit('mlx_lm' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
