from __future__ import annotations

import importlib.resources
import json
import os
import shlex
import shutil
from pathlib import Path

import pytest

from h2o_pack.errors import ExitCode
from h2o_pack.files import lock
from h2o_pack.spec import from_document
from tests.bridge import schemas
from tests.bridge.golden import large_model
from tests.bridge.repositories import COPIES, DEFAULT, commit, edits_tree
from tests.bridge.trees import build_tree, names, tree

EDITS_OF_LATER = """
[[edit]]
package = "mlx-swift-lm"
file = "Package.swift"
anchor = '^later$'
where = "after"
insert = "// edited\\n"
"""


@pytest.fixture
def ios(run, tmp_path):
    def command(*options, max_kv=256):
        output = ("--output", tmp_path / "Demo")
        return run("ios", "--model", "demo", "--max-kv", max_kv, *output, *options)

    return command


@pytest.fixture
def upstream(copied_assets, repositories, cache, monkeypatch):
    """Small repositories in the place of upstream's, which `ios` fetches."""
    build_tree(copied_assets, edits_tree(COPIES))
    monkeypatch.setenv("H2O_PACK_VENDOR", "1")
    monkeypatch.setenv("H2O_PACK_CACHE", str(cache))
    monkeypatch.setenv("H2O_PACK_MIRROR", repositories.url)
    return repositories


def test_ios_vendors_and_verifies_too(ios, upstream, tmp_path):
    result = ios("--json")
    assert result.exit_code == 0, result.stderr
    document = schemas.check(json.loads(result.stdout), "ios")
    assert document["vendor"]["commits"] == upstream.commits
    assert document["written"]
    assert (tmp_path / "Demo/Vendor/mlx-swift/Source/all.h").exists()
    assert lock.read(tmp_path / "Demo").vendor is not None


def test_the_same_vendor_folder_is_not_made_again(ios, upstream, tmp_path, monkeypatch):
    ios()
    own = tmp_path / "Demo/Vendor/mlx-swift/Source/mine.h"
    own.write_text("mine")
    monkeypatch.setenv("H2O_PACK_MIRROR", "http://127.0.0.1:9")
    result = ios("-v", max_kv=200)
    assert result.exit_code == 0, result.stderr
    assert "Vendor is as it should be" in result.stderr
    assert own.exists()
    assert lock.read(tmp_path / "Demo").models[0].config["max_size"] == 200


@pytest.mark.parametrize("how", ["missing", "changed"])
def test_a_vendor_folder_that_is_not_whole_is_made_again(ios, upstream, tmp_path, how):
    ios()
    file = tmp_path / "Demo/Vendor/mlx-swift/Source/kernel.h"
    if how == "missing":
        file.unlink()
    else:
        file.write_text("mine")
    result = ios()
    assert result.exit_code == 0, result.stderr
    assert file.read_text() == "score;\n"
    mine = tmp_path / "Demo/Replaced/Vendor/mlx-swift/Source/kernel.h"
    assert mine.exists() == (how == "changed")


def test_another_release_makes_it_again(ios, upstream, tmp_path, copied_assets):
    ios()
    build_tree(copied_assets, edits_tree(COPIES.replace("Source", "Package.swift", 1)))
    result = ios()
    assert result.exit_code == 0, result.stderr
    assert names(tmp_path / "Demo/Vendor/mlx-swift") == ["Package.swift"]


def test_another_upstream_version_has_its_own_sources_and_edits(
    ios, upstream, tmp_path, copied_assets
):
    later = commit(upstream.folder("mlx-swift-lm"), {"Package.swift": "later\n"})
    upstream.pin(later=later)
    build_tree(copied_assets, edits_tree(COPIES, EDITS_OF_LATER, "later"))
    ios()
    manifest = tmp_path / "Demo/Vendor/mlx-swift-lm/Package.swift"
    assert "later" not in manifest.read_text()

    result = ios("--upstream-version", "later")
    assert result.exit_code == 0, result.stderr
    assert manifest.read_text() == "later\n// edited\n"
    record = lock.read(tmp_path / "Demo")
    assert record.vendor is not None
    assert record.vendor.commits == {**upstream.commits, "mlx-swift-lm": later}
    assert record.upstream["mlx-swift-lm"]["commit"] == later
    assert "Vendor is as it should be" in ios("-v", "--upstream-version", "later").stderr


def test_vendor_goes_on_with_the_packages_upstream_version_or_another(
    ios, run, upstream, tmp_path, copied_assets
):
    later = commit(upstream.folder("mlx-swift-lm"), {"Package.swift": "later\n"})
    upstream.pin(later=later)
    build_tree(copied_assets, edits_tree(COPIES, EDITS_OF_LATER, "later"))
    ios("--no-vendor", "--upstream-version", "later")
    manifest = tmp_path / "Demo/Vendor/mlx-swift-lm/Package.swift"

    assert run("vendor", tmp_path / "Demo").exit_code == 0
    assert manifest.read_text() == "later\n// edited\n"
    assert run("vendor", tmp_path / "Demo", "--upstream-version", DEFAULT).exit_code == 0
    assert "later" not in manifest.read_text()
    assert lock.read(tmp_path / "Demo").upstream_version == DEFAULT


def test_an_upstream_version_that_there_is_not_is_refused(ios, tmp_path):
    result = ios("--upstream-version", DEFAULT[:-1])
    assert result.exit_code == ExitCode.USAGE
    assert result.stderr.startswith(
        f'error: there is no upstream version "{DEFAULT[:-1]}". Did you mean "{DEFAULT}"? '
    )
    assert names(tmp_path) == []


def test_offline_the_package_is_whole_but_for_vendor(ios, upstream, tmp_path, monkeypatch):
    monkeypatch.setenv("H2O_PACK_MIRROR", "http://127.0.0.1:9")
    result = ios("--json")
    assert result.exit_code == ExitCode.NETWORK
    document = schemas.check(json.loads(result.stdout), "ios")
    assert document["vendor"] is None
    assert [each["code"] for each in document["errors"]] == [ExitCode.NETWORK]
    assert result.stderr.startswith("error: mlx-swift 1.0, commit ")
    assert "Vendor" not in names(tmp_path / "Demo")
    assert (tmp_path / "Demo/Model/manifest.json").exists()


def test_where_upstream_was_not_fetched_no_success_is_shown(ios, upstream, monkeypatch):
    monkeypatch.setenv("H2O_PACK_MIRROR", "http://127.0.0.1:9")
    result = ios()
    assert result.exit_code == ExitCode.NETWORK
    (line,) = result.stdout.splitlines()
    assert line.endswith("is whole but for Vendor: run the same command again")
    assert "--mirror" in result.stderr


def test_ios_takes_the_mirror_cache_and_folder_that_its_refusal_names(
    ios, upstream, tmp_path, monkeypatch
):
    monkeypatch.setenv("H2O_PACK_MIRROR", "http://127.0.0.1:9")
    monkeypatch.delenv("H2O_PACK_CACHE")
    own = tmp_path / "own cache"
    result = ios("--mirror", upstream.url, "--cache", own)
    assert result.exit_code == 0, result.stderr
    assert names(own)
    clones = upstream.mirror / "owner"
    assert ios("--upstream", clones).exit_code == 0


def test_the_next_steps_can_be_pasted(run, tmp_path):
    folder = tmp_path / "My Demo"
    result = run("ios", "--model", "demo", "--max-kv", 64, "--output", folder, "--no-vendor")
    (line,) = [each for each in result.stdout.splitlines() if each.startswith("next: ")]
    steps = [shlex.split(each) for each in line.removeprefix("next: ").split("; ")]
    project = f"{folder}/App/Chat.xcodeproj"
    assert steps[0] == ["h2o-pack", "vendor", str(folder)]
    assert steps[1:] == [["h2o-pack", "parity", str(folder)], ["open", project]]


def test_a_dry_run_tells_the_same_and_writes_nothing(ios, tmp_path):
    told = schemas.check(json.loads(ios("--dry-run", "--json").stdout), "ios")
    assert names(tmp_path) == []
    done = json.loads(ios("--json").stdout)
    assert not told.pop("written")
    assert done.pop("written")
    assert told == done
    assert "nothing was written" in ios("--dry-run").stdout


def test_storage_and_budgets_reach_swift_and_the_lock(ios, tmp_path):
    file = tmp_path / "budgets.json"
    layers = [{"heavy_budget": 100, "recent_budget": 140}, None, None, None]
    file.write_text(json.dumps({"format": 1, "layers": layers}))
    result = ios("--kv", "k8v4", "--budgets", file)
    assert result.exit_code == 0, result.stderr
    source = (tmp_path / "Demo/Sources/DemoModel/BundledModel.swift").read_text()
    assert "storage: .keys8Values4, groupSize: 64,\n            budgets: budgets)" in source
    layers_in_swift = "H2OBudgets.Layer(heavyBudget: 100, recentBudget: 140),\n        nil,"
    assert layers_in_swift in source
    record = lock.read(tmp_path / "Demo")
    assert (record.models[0].kv, record.models[0].group_size) == ("k8v4", 64)
    [model] = from_document(record.spec, tmp_path / "Demo" / lock.NAME).models
    assert model.cache.budgets is not None
    assert model.cache.budgets.to_dict()["layers"] == layers


@pytest.fixture
def chatting(run, tmp_path):
    """Package the demo model with more files."""

    def command(*options, **files):
        folder = tmp_path / "chatting"
        demo = importlib.resources.files("h2o_pack.models") / "demo"
        shutil.copytree(demo, folder, dirs_exist_ok=True)
        build_tree(folder, {name.replace("__", "."): text for name, text in files.items()})
        arguments = ("--max-kv", 64, "--name", "Demo", "--output", tmp_path / "Demo", *options)
        return run("ios", "--model", folder, *arguments)

    return command


def test_what_a_chat_template_reads_reaches_swift(chatting, tmp_path):
    source = "{{ messages[0].content }}{{ '<think>' if enable_thinking }}"
    result = chatting(chat_template__jinja=source)
    assert result.exit_code == 0, result.stderr
    swift = (tmp_path / "Demo/Sources/DemoModel/BundledModel.swift").read_text()
    assert 'templateVariables: [String] = ["enable_thinking"]\n' in swift
    assert "chat template" not in result.stdout


def test_what_a_model_that_thinks_holds_twice_is_in_its_plan(chatting, tmp_path):
    said = "{% for each in messages %}{{ each.content }}{% endfor %}"
    plain = json.loads(chatting("--json", chat_template__jinja=said).stdout)
    thinks = json.loads(chatting("--json", chat_template__jinja=said + "<think>").stdout)
    terms = [
        {term["name"]: term["bytes"] for term in document["models"][0]["memory"]["terms"]}
        for document in (plain, thinks)
    ]
    caches = sum(terms[0][name] for name in ("keys and values", "recurrent state", "ledger"))
    assert terms[1] == {**terms[0], "before thoughts": caches}
    swift = (tmp_path / "Demo/Sources/DemoModel/BundledModel+Loading.swift").read_text()
    assert swift.count(f", thoughts: {caches:_})") == 2


def test_a_chat_template_with_a_problem_is_named(chatting):
    result = chatting(chat_template__jinja="{% if %}")
    assert result.exit_code == 0, result.stderr
    assert "note: the chat template in chat_template.jinja cannot be parsed: line 1" in (
        result.stdout.replace("\n", " ")
    )


def test_a_model_without_a_chat_template_is_named(chatting):
    assert "note: the model has no chat template" in chatting().stdout


def test_a_generation_config_that_cannot_be_used_is_refused(chatting, tmp_path):
    result = chatting(generation_config__json='{"top_p": 3}')
    assert result.exit_code == ExitCode.MODEL
    assert "top_p is 3, not a number from 0 to 1" in result.stderr
    assert not (tmp_path / "Demo").exists()


def test_a_generation_config_is_bundled(chatting, tmp_path):
    chatting(generation_config__json='{"top_p": 0.9}')
    assert (tmp_path / "Demo/Model/generation_config.json").read_text() == '{"top_p": 0.9}'


def test_mixed_is_recent_16_and_others_8(ios):
    [model] = json.loads(ios("--kv", "mixed", "--dry-run", "--json").stdout)["models"]
    assert model["kv"] == "r16h8"


def test_a_device_that_is_too_small_is_refused_before_anything_is_written(run, tmp_path):
    model = large_model(tmp_path / "Qwen3-4B-4bit")
    arguments = ("--model", model.folder, "--max-kv", 512, "--output", tmp_path / "Out")
    result = run("ios", *arguments, "--device", "iPhone13,1")
    assert result.exit_code == ExitCode.MEMORY == 8
    assert "iPhone 12 mini" in result.stderr
    assert not (tmp_path / "Out").exists()


def test_paths_in_the_document_are_those_on_disk(ios, tmp_path):
    document = json.loads(ios("--json").stdout)
    written = set(tree(tmp_path / "Demo"))
    assert set(document["files"]) < written
    [model] = document["models"]
    assert {f"Model/{each['path']}" for each in model["files"]} < written
    assert Path(document["package"]) == tmp_path / "Demo"


def test_budgets_may_come_from_a_pipe_of_the_shell_which_can_be_read_once(ios):
    layer = {"heavy_budget": 16, "recent_budget": 24, "max_size": 48}
    read, write = os.pipe()
    with os.fdopen(read), os.fdopen(write, "w") as file:
        json.dump({"format": 1, "layers": [layer, None, None, None]}, file)
        file.close()
        result = ios("--budgets", f"/dev/fd/{read}", "--dry-run", max_kv=64)
    assert result.exit_code == 0, result.output
    assert "48 to 64 by layer" in result.output
