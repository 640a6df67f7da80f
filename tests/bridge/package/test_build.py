"""`ios`: what is made, fetched and said."""

import json
import os
import shlex
import shutil

import pytest

from h2o_pack.errors import ExitCode
from h2o_pack.files import lock
from h2o_pack.vendoring.edits import EDITS
from tests.bridge import schemas
from tests.bridge.models.checkpoints import sparse_checkpoint
from tests.bridge.repositories import COPIES, commit
from tests.bridge.trees import build_tree, names
from tests.conftest import DEMO
from tests.hub.qwen3 import CONFIG


@pytest.fixture
def upstream(copied_assets, repositories, cache, monkeypatch):
    """Small repositories in the place of upstream's, which `ios` fetches."""
    build_tree(copied_assets, {EDITS: COPIES})
    monkeypatch.setenv("H2O_PACK_VENDOR", "1")
    monkeypatch.setenv("H2O_PACK_CACHE", str(cache))
    monkeypatch.setenv("H2O_PACK_MIRROR", repositories.url)
    return repositories


def test_ios_vendors_and_verifies_too(ios, upstream, tmp_path):
    document = schemas.check(json.loads(ios("--json").stdout), "ios")
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
    assert "Vendor is complete" in result.stderr
    assert own.exists()
    assert lock.read(tmp_path / "Demo").models[0].config["max_size"] == 200


def test_a_vendor_folder_that_is_not_whole_is_made_again(ios, upstream, tmp_path):
    ios()
    file = tmp_path / "Demo/Vendor/mlx-swift/Source/kernel.h"
    header = tmp_path / "Demo/Replaced/Vendor/mlx-swift/Source/kernel.h"
    file.unlink()
    ios()
    assert file.read_text() == "score;\n"
    assert not header.exists()
    file.write_text("mine")
    ios()
    assert file.read_text() == "score;\n"
    assert header.read_text() == "mine"


def test_another_release_makes_it_again(ios, upstream, tmp_path, copied_assets):
    ios()
    build_tree(copied_assets, {EDITS: COPIES.replace("Source", "Package.swift", 1)})
    ios()
    assert names(tmp_path / "Demo/Vendor/mlx-swift") == ["Package.swift"]


def test_other_pins_make_it_again(ios, upstream, tmp_path):
    ios()
    later = commit(upstream.folder("mlx-swift-lm"), {"Package.swift": "later\n"})
    upstream.pin(**{"mlx-swift-lm": later})
    ios()
    assert (tmp_path / "Demo/Vendor/mlx-swift-lm/Package.swift").read_text() == "later\n"
    record = lock.read(tmp_path / "Demo")
    assert record.vendor is not None
    assert record.vendor.commits == {**upstream.commits, "mlx-swift-lm": later}
    assert record.upstream["mlx-swift-lm"]["commit"] == later
    assert "Vendor is complete" in ios("-v").stderr


def test_offline_the_package_is_whole_but_for_vendor_and_no_success_is_shown(
    ios, upstream, tmp_path, monkeypatch
):
    monkeypatch.setenv("H2O_PACK_MIRROR", "http://127.0.0.1:9")
    result = ios("--json", code=ExitCode.NETWORK)
    document = schemas.check(json.loads(result.stdout), "ios")
    assert document["vendor"] is None
    assert [error["code"] for error in document["errors"]] == [ExitCode.NETWORK]
    assert result.stderr.startswith("error: mlx-swift 1.0, commit ")
    assert "--mirror" in result.stderr
    assert "Vendor" not in names(tmp_path / "Demo")
    assert (tmp_path / "Demo/Model/manifest.json").exists()
    (line,) = ios(code=ExitCode.NETWORK).stdout.splitlines()
    assert line.endswith("is complete except for Vendor: run the command again")


def test_ios_takes_the_mirror_cache_and_folder_that_its_refusal_names(
    ios, upstream, tmp_path, monkeypatch
):
    monkeypatch.setenv("H2O_PACK_MIRROR", "http://127.0.0.1:9")
    monkeypatch.delenv("H2O_PACK_CACHE")
    own = tmp_path / "own cache"
    ios("--mirror", upstream.url, "--cache", own)
    assert names(own)
    ios("--upstream", upstream.mirror / "owner")


def test_the_next_steps_can_be_pasted(run, tmp_path):
    folder = tmp_path / "My Demo"
    result = run("ios", "--model", "demo", "--max-kv", 64, "--output", folder, "--no-vendor")
    steps = [shlex.split(step) for step in result.stdout.partition("next:\n")[2].splitlines()]
    project = f"{folder}/App/demo.xcodeproj"
    assert steps[0] == ["h2o-pack", "vendor", str(folder)]
    assert steps[1:] == [["open", project], ["h2o-pack", "parity", str(folder)]]


def test_a_dry_run_tells_the_same_and_writes_nothing(ios, tmp_path):
    dry_run = schemas.check(json.loads(ios("--dry-run", "--json").stdout), "ios")
    assert names(tmp_path) == []
    output = json.loads(ios("--json").stdout)
    assert not dry_run.pop("written")
    assert output.pop("written")
    assert dry_run == output
    assert "nothing was written" in ios("--dry-run").stdout


@pytest.fixture
def chatting(ios, tmp_path):
    """Package the demo model with more files."""

    def command(*options, code=ExitCode.OK, **files):
        folder = tmp_path / "chatting"
        shutil.copytree(DEMO, folder, dirs_exist_ok=True)
        build_tree(folder, {name.replace("__", "."): text for name, text in files.items()})
        return ios("--name", "Demo", *options, model=folder, code=code)

    return command


def test_what_the_chat_template_does_and_how_prompts_are_cut_is_in_the_manifest(
    chatting, tmp_path
):
    source = (
        "{% for m in messages %}{{ m.role }}: {{ m.content }}<|end|>{% endfor %}"
        "{% if add_generation_prompt %}assistant: <think>{% endif %}"
    )
    chatting("--prefill-step", "48", chat_template__jinja=source)
    manifest = json.loads((tmp_path / "Demo/Model/manifest.json").read_bytes())
    assert manifest["prompt_chunk"] == 48
    assert manifest["chat"] == {
        "template": True,
        "system": True,
        "tools": False,
        "thinking": {"begin": "<think>", "end": "</think>"},
        "drops_thoughts": True,
        "stops": [0],
        "stop_texts": ["<|end|>"],
    }


def test_what_a_model_that_thinks_holds_twice_is_in_its_plan(chatting, tmp_path):
    template = "{% for each in messages %}{{ each.content }}{% endfor %}"
    plain = json.loads(chatting("--json", chat_template__jinja=template).stdout)
    begins = "{% if add_generation_prompt %}<think>{% endif %}"
    thinks = json.loads(chatting("--json", chat_template__jinja=template + begins).stdout)
    terms = [
        {term["name"]: term["bytes"] for term in document["models"][0]["memory"]["terms"]}
        for document in (plain, thinks)
    ]
    caches = sum(terms[0][name] for name in ("keys and values", "recurrent state", "ledger"))
    assert terms[1] == {**terms[0], "before thoughts": caches}
    swift = (tmp_path / "Demo/Sources/DemoModel/BundledModel+Loading.swift").read_text()
    assert swift.count(f", thoughts: {caches:_})") == 2


def test_a_model_without_a_chat_template_is_noted(chatting):
    note = "note: the model has no chat template"
    assert note in chatting().stdout.replace("\n", " ")


@pytest.mark.parametrize("template", ["{% if %}", "{{ bos + 'a' }}", "{{ 1 // 0 }}"])
def test_a_chat_template_with_which_no_session_can_reply_is_refused(
    chatting, tmp_path, template
):
    result = chatting(chat_template__jinja=template, code=ExitCode.MODEL)
    assert "the chat template " in result.stderr
    assert not (tmp_path / "Demo").exists()


def test_a_generation_config_that_cannot_be_used_is_refused(chatting, tmp_path):
    result = chatting(generation_config__json='{"top_p": 3}', code=ExitCode.MODEL)
    assert "top_p is 3, but must be a number from 0 to 1" in result.stderr
    assert not (tmp_path / "Demo").exists()


def test_a_generation_config_is_bundled(chatting, tmp_path):
    chatting(generation_config__json='{"top_p": 0.9}')
    assert (tmp_path / "Demo/Model/generation_config.json").read_text() == '{"top_p": 0.9}'


def test_a_device_that_is_too_small_is_refused_before_anything_is_written(ios, tmp_path):
    model = tmp_path / "Qwen3-4B-4bit"
    build_tree(model, {"config.json": CONFIG.read_text("utf-8"), "tokenizer.json": "{}"})
    sparse_checkpoint(model / "model.safetensors", {"weights": ("U8", [2_263_022_529])})
    result = ios("--device", "iPhone13,1", model=model, code=ExitCode.MEMORY)
    assert "iPhone 12 mini" in result.stderr
    assert names(tmp_path) == ["Qwen3-4B-4bit"]


def test_budgets_may_come_from_a_pipe_of_the_shell_which_can_be_read_once(ios):
    layer = {"heavy_budget": 16, "recent_budget": 24, "max_size": 48}
    reader, write = os.pipe()
    with os.fdopen(reader), os.fdopen(write, "w") as file:
        json.dump({"format": 1, "layers": [layer, None, None, None]}, file)
        file.close()
        result = ios("--budgets", f"/dev/fd/{reader}", "--dry-run", max_kv=64)
    assert "48 to 64 by layer" in result.output


# The bundle identifier


@pytest.fixture
def project(tmp_path):
    """Return a function that gives the text of the package's Xcode project."""
    return lambda: next(tmp_path.glob("Demo/App/*.xcodeproj/project.pbxproj")).read_text(
        "utf-8"
    )


def identifier(result):
    return schemas.check(json.loads(result.stdout), "ios")["bundle_id"]


def test_the_project_has_the_identifier_that_was_given(ios, project):
    ios("--bundle-id", "com.example.Chat", "--name", "My Chat")
    assert project().count('PRODUCT_BUNDLE_IDENTIFIER = "com.example.Chat";') == 2


def test_two_makers_of_one_model_get_two_identifiers(ios, monkeypatch):
    identifiers = []
    for home in ("/home/ann", "/home/bob"):
        monkeypatch.setenv("HOME", home)
        identifiers.append(identifier(ios("--dry-run", "--json")))
    assert len(set(identifiers)) == 2


def test_an_identifier_stays_wherever_the_package_is_made_again(
    ios, run, project, tmp_path, monkeypatch
):
    first = identifier(ios("--json"))
    monkeypatch.setenv("HOME", "/home/another")
    again = ios("--json")
    assert identifier(again) == first
    assert json.loads(again.stdout)["app"] == "kept"
    assert run("update", tmp_path / "Demo").exit_code == 0
    assert f'"{first}"' in project()


def test_another_identifier_is_for_a_new_scaffold(ios, project, tmp_path):
    ios("--bundle-id", "com.example.One")
    before = project()
    result = ios("--bundle-id", "com.example.Two", "--json")
    assert (identifier(result), json.loads(result.stdout)["app"]) == (
        "com.example.Two",
        "outdated",
    )
    assert project() == before


def test_a_wrong_identifier_is_reported_with_all_other_errors(ios, tmp_path):
    options = ("--bundle-id", "Chat", "--name", "x")
    result = ios(*options, max_kv=1, code=ExitCode.USAGE)
    assert '--bundle-id "Chat" is not a bundle identifier' in result.stderr.replace("'", '"')
    assert not (tmp_path / "Demo").exists()
