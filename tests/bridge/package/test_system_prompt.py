"""`ios --system`: the caches of the system prompt, computed when packaging."""

import json
import shutil

import mlx.core as mx
import mlx_lm.models.cache
import pytest
from click.testing import CliRunner
from mlx_lm.models.cache import (
    ArraysCache,
    CacheList,
    ChunkedKVCache,
    KVCache,
    RotatingKVCache,
    load_prompt_cache,
)

from h2o_pack.bundling import manifest
from h2o_pack.cli import main
from h2o_pack.errors import ExitCode
from h2o_pack.files import lock
from h2o_pack.files.paths import SYSTEM_PROMPT
from h2o_pack.measure import models
from h2o_pack.models.texts import ChatTemplate, ModelTexts, common, first_turns
from h2o_pack.package import system_prompt as prepared
from h2o_pack.package.system_prompt import check_kinds
from h2o_py import H2OConfig, H2OKVCache, H2ORecall
from h2o_py.models import make_h2o_cache
from h2o_py.routing import routed
from tests.bridge import schemas
from tests.bridge.trees import build_tree, names
from tests.conftest import DEMO
from tests.messages import refused, says
from tests.processes import full_disk

MARKS = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}<assistant>"


def test_what_all_begin_with_may_be_nothing_or_all():
    assert common(["abc", "abd", "ab"]) == ["a", "b"]
    assert common(["abc", "abc"]) == ["a", "b", "c"]
    assert common(["abc", "xbc"]) == []


def test_a_template_that_writes_the_date_after_the_user_has_spoken_is_no_problem():
    template = ChatTemplate(MARKS + "{{ strftime_now('%d') }}", "x")
    assert len(first_turns(ModelTexts(template), "Be brief.", "m")) == 2


@pytest.mark.parametrize(
    ("source", "what"),
    [
        (
            "{{ raise_exception('no system role') }}",
            'refuses a system prompt: "no system role"',
        ),
        ("{{ messages[-1].content }}", "omits the system prompt"),
        ("{{ strftime_now('%d') }}" + MARKS, "writes the date before the system prompt"),
    ],
)
def test_a_template_with_which_nothing_can_be_prepared_is_refused(source, what):
    texts = ModelTexts(ChatTemplate(source, "x.jinja"))
    error = refused(first_turns, texts, "Be brief.", "m", code=ExitCode.USAGE)
    assert f"the chat template {what}" in error


TEXT = "You are a brief assistant. Answer in one sentence, in plain words."
TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}<assistant>"
SAID = " What is a heavy hitter?"


@pytest.fixture
def package(ios, tmp_path):
    """Package the demo model with a system prompt; return the result of the command."""

    def command(*options, text=TEXT, max_kv=64, **settings):
        file = tmp_path / "system.txt"
        file.write_text(f"\n{text}\n", "utf-8")
        return ios("--name", "Demo", "--system", file, *options, max_kv=max_kv, **settings)

    return command


def test_a_disk_that_is_full_is_named_as_the_cause(package, monkeypatch):
    save = mlx_lm.models.cache.save_prompt_cache

    def on_a_full_disk(*arguments):
        with full_disk():
            save(*arguments)

    monkeypatch.setattr(mlx_lm.models.cache, "save_prompt_cache", on_a_full_disk)
    result = package(code=ExitCode.OUTPUT)
    assert "cannot be written: File too large" in result.stderr


@pytest.fixture(scope="module")
def demo_with_prompt(tmp_path_factory):
    """Package what `package()` does, for copies."""
    folder = tmp_path_factory.mktemp("once")
    (folder / "system.txt").write_text(TEXT)
    options = ("--name", "Demo", "--max-kv", "64", "--output", folder / "Demo")
    arguments = ("ios", "--model", "demo", "--system", folder / "system.txt", *options)
    result = CliRunner().invoke(main, list(map(str, arguments)))
    assert result.exit_code == ExitCode.OK, result.output
    return folder / "Demo"


@pytest.fixture
def demo(demo_with_prompt, tmp_path):
    return shutil.copytree(demo_with_prompt, tmp_path / "Demo")


@pytest.fixture
def loads(monkeypatch):
    """Return what is loaded while a test runs."""
    folders = []
    load = models.load

    def noting(*arguments):
        folders.append(arguments)
        return load(*arguments)

    monkeypatch.setattr(models, "load", noting)
    return folders


def caches_of(folder, scratch):
    """Load the caches of a package by mlx-lm, which goes by the ending of a name."""
    path = shutil.copyfile(folder / "Model" / SYSTEM_PROMPT, scratch / "prompt.safetensors")
    return load_prompt_cache(str(path), return_metadata=True)


def logits(model, caches, ids):
    with routed():
        return model(mx.array([ids]), cache=caches)


def test_the_caches_go_on_as_those_of_a_model_that_read_the_prompt(demo, tmp_path):
    caches, metadata = caches_of(demo, tmp_path)
    prompt = json.loads(metadata["tokens"])
    model, tokenizer = models.load("demo")
    config = H2OConfig(64, pinned=((0, len(prompt)),), recall=H2ORecall())
    own = make_h2o_cache(model, config)
    logits(model, own, prompt)
    for chunk in (tokenizer.encode(SAID), [7] * 40, [7], [7]):
        assert mx.array_equal(logits(model, caches, chunk), logits(model, own, chunk))
    for cache, expected in zip(caches, own, strict=True):
        assert cache.config == config
        assert cache.offset > cache.max_size
        assert mx.array_equal(cache.positions, expected.positions)
        positions = set(cache.positions[0, 0].tolist())
        assert positions >= set(range(len(prompt)))


def test_the_prompt_is_read_in_the_chunks_of_the_app(package, tmp_path):
    package("--prefill-step", 8, "--kv", "k8v4")
    caches, metadata = caches_of(tmp_path / "Demo", tmp_path)
    prompt = json.loads(metadata["tokens"])
    model, _ = models.load("demo")
    own = make_h2o_cache(model, H2OConfig(64, pinned=((0, len(prompt)),)), kv="k8v4")
    for begin in range(0, len(prompt), 8):
        logits(model, own, prompt[begin : begin + 8])
    for cache, expected in zip(caches, own, strict=True):
        assert mx.array_equal(cache.scores, expected.scores)
        assert mx.array_equal(cache.arrays[0], expected.arrays[0])


def test_manifest_result_and_swift_say_what_they_were_computed_from(package, tmp_path):
    document = schemas.check(json.loads(package("--json").stdout), "ios")
    bundled = manifest.read(tmp_path / "Demo")
    prompt = bundled.system_prompt
    assert prompt is not None
    [model] = document["models"]
    assert model["system_prompt"] == vars(prompt)
    assert prompt.prompt == lock.sha256(TEXT.encode())
    assert (prompt.template, prompt.model, prompt.chunk) == ("", bundled.digest, 512)
    assert SYSTEM_PROMPT in {file.path for file in bundled.files}
    _, metadata = caches_of(tmp_path / "Demo", tmp_path)
    assert metadata["model"] == bundled.digest
    assert len(json.loads(metadata["tokens"])) == prompt.tokens
    source = (tmp_path / "Demo/Sources/DemoModel/BundledModel.swift").read_text("utf-8")
    assert f'systemPrompt: String? = "{TEXT}"\n' in source


def test_the_same_prompt_is_not_read_again(package, demo, loads):
    before = (demo / "Model" / SYSTEM_PROMPT).read_bytes()
    result = package("-v")
    assert "the caches of the system prompt are up to date" in result.stderr
    assert loads == []
    assert (demo / "Model" / SYSTEM_PROMPT).read_bytes() == before


@pytest.mark.parametrize(
    "change",
    [{"text": "Be kind."}, {"max_kv": 96}, {"model": "demo-4bit"}],
    ids=["prompt", "policy", "model"],
)
def test_another_prompt_policy_or_model_is_read(package, demo, loads, change):
    before = manifest.read(demo).system_prompt
    package(**change)
    assert len(loads) == 1
    assert manifest.read(demo).system_prompt != before


def test_another_template_is_read(package, loads, tmp_path):
    folder = tmp_path / "chatting"
    shutil.copytree(DEMO, folder)
    for source in (TEMPLATE, TEMPLATE, TEMPLATE + "!"):
        build_tree(folder, {"chat_template.jinja": source})
        package(model=folder, max_kv=96)
    assert len(loads) == 2
    prompt = manifest.read(tmp_path / "Demo").system_prompt
    assert prompt is not None
    assert prompt.template == lock.sha256((TEMPLATE + "!").encode())


def test_a_damaged_file_is_noticed_and_computed_again(package, demo, loads, run):
    path = demo / "Model" / SYSTEM_PROMPT
    content = path.read_bytes()
    path.write_bytes(content[:-1] + b"?")
    assert run("verify", demo).exit_code == ExitCode.DIFFERENT
    package()
    assert len(loads) == 1
    assert path.read_bytes() == content


def test_it_leaves_with_the_option(ios, demo):
    ios("--name", "Demo", max_kv=64)
    assert SYSTEM_PROMPT not in names(demo / "Model")
    assert manifest.read(demo).system_prompt is None


def test_caches_that_another_model_computed_are_a_difference(demo, run):
    path = demo / "Model/manifest.json"
    document = json.loads(path.read_text("utf-8"))
    document["system_prompt"]["model"] = "0" * 64
    path.write_text(json.dumps(document), "utf-8")
    result = run("verify", demo)
    assert result.exit_code == ExitCode.DIFFERENT
    assert "has caches of a system prompt that another model computed" in result.stdout


@pytest.mark.parametrize("run_only", [(), ("--dry-run",)], ids=["made", "planned"])
def test_a_prompt_that_the_caches_cannot_pin_is_refused_before_work_starts(
    package, loads, tmp_path, run_only
):
    result = package(*run_only, text=TEXT * 3, code=ExitCode.USAGE)
    assert "the system prompt has 103 tokens, which do not fit" in result.stderr
    assert loads == []
    assert "Demo" not in names(tmp_path)


def test_a_prompt_that_is_too_long_is_known_before_weights_are_fetched(hub, package):
    files = ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors")
    contents = {name: (DEMO / name).read_bytes() for name in files}
    hub.add("someone/demo", contents)
    package(model="someone/demo", text=TEXT * 3, code=ExitCode.USAGE)
    assert hub.asked("GET", "tokenizer.json")
    sizes = [
        int(request.range.partition("-")[2]) for request in hub.asked("GET", ".safetensors")
    ]
    assert max(sizes) < len(contents["model.safetensors"]) / 10  # its header


@pytest.mark.parametrize(
    ("template", "text"),
    [(None, f"{TEXT}\n"), (TEMPLATE, f"<system>{TEXT}\n<user>")],
    ids=["plain", "templated"],
)
def test_the_tokens_are_those_with_which_mlx_lm_begins_every_first_turn(
    package, tmp_path, template, text
):
    folder = tmp_path / "model"
    shutil.copytree(DEMO, folder)
    build_tree(folder, {} if template is None else {"chat_template.jinja": template})
    package(model=folder, max_kv=96)
    _, metadata = caches_of(tmp_path / "Demo", tmp_path)
    _, tokenizer = models.load(str(folder))
    if template is None:
        turn = tokenizer.encode(f"{TEXT}\n{SAID}")
    else:
        messages = [{"role": "system", "content": TEXT}, {"role": "user", "content": SAID}]
        turn = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_dict=False
        )
    ids = json.loads(metadata["tokens"])
    assert turn[: len(ids)] == ids
    assert tokenizer.decode(ids) == text


def test_too_little_memory_is_said_before_work_starts(package, loads, monkeypatch, tmp_path):
    limit = tmp_path / "memory.max"
    limit.write_text("20000000\n")
    monkeypatch.setattr(prepared, "CONTAINER", limit)
    result = package(code=ExitCode.MEMORY)
    assert "needs 0.03 GB of memory, but this machine has 0.02 GB" in result.stderr
    assert loads == []
    assert "Demo" not in names(tmp_path)


def test_a_prompt_without_text_is_refused(package, tmp_path):
    result = package(text=" ", code=ExitCode.USAGE)
    assert "system.txt is empty" in result.stderr
    assert "Demo" not in names(tmp_path)


def test_caches_that_swift_does_not_read_are_refused():
    check_kinds([KVCache(), RotatingKVCache(8), H2OKVCache(64)], "gemma3")
    check_kinds([CacheList(ArraysCache(2), H2OKVCache(64))], "falcon_h1")
    chunked = [KVCache(), CacheList(KVCache(), ChunkedKVCache(8))]
    says(refused(check_kinds, chunked, "other", code=ExitCode.MODEL))


@pytest.mark.parametrize("place", ["memory", "files"])
def test_the_archive_of_recall_is_there_too_and_in_no_files_yet(package, tmp_path, place):
    package("--recall", "--archive", place, max_kv=128)
    caches, metadata = caches_of(tmp_path / "Demo", tmp_path)
    prompt = json.loads(metadata["tokens"])
    for cache in caches:
        assert cache.config.recall is not None
        assert cache.config.recall.store is None
        assert cache.arrays[-1].shape[2] == len(prompt)
