"""The catalogue of known models and the command that shows it."""

import json
from datetime import date
from pathlib import Path

import pytest

from h2o_pack.errors import ExitCode, UserError
from h2o_pack.facts import best_first, known_models
from h2o_pack.hub.client import unreachable
from h2o_pack.hub.resolve import find_model
from h2o_pack.memory.cache_bytes import fixed_bytes, token_bytes
from h2o_pack.model import Layer, ModelConfig
from h2o_pack.models import trial
from h2o_pack.models.catalogue import as_model, catalogue, find
from h2o_pack.models.files import weigh
from h2o_pack.spec import ModelSpec
from tests.bridge import schemas
from tests.bridge.models.checkpoints import ALL, folder_of, repository
from tests.bridge.models.small_configs import quantized
from tests.bridge.models.test_files import tensors_of
from tests.bridge.trees import resolve
from tests.nightly import nightly_except


@pytest.fixture(autouse=True)
def _no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("H2O_PACK_CACHE", str(tmp_path / "cache"))


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


PHONE = ("--max-kv", "128", "--device", "iPhone18,1", "--json")
HUB = [known_model for known_model in known_models().values() if known_model.hub]
PUBLISHED = {
    "Qwen3-0.6B-4bit": 335_450_584,
    "Qwen3-4B-4bit": 2_263_022_529,
    "Llama-3.2-1B-Instruct-4bit": 695_283_921,
    "Llama-3.2-3B-Instruct-4bit": 1_807_496_278,
}
"""Sizes of model.safetensors on the hub: the tensors and a header."""


BY_NAME = {entry.name: entry for entry in HUB}


@pytest.mark.parametrize("name", nightly_except([*PUBLISHED, *[*BY_NAME][::8]], BY_NAME))
def test_the_weights_of_an_entry_are_those_of_mlx_lms_model(name):
    entry = BY_NAME[name]
    model = as_model(entry)
    assert entry.source
    assert model.config.evicting
    experts, used_experts = model.config.experts, model.config.experts_per_token
    computed = weigh(
        tensors_of(quantized(entry)), experts=experts, experts_per_token=used_experts
    )
    weights = model.weights
    assert (computed.bytes, computed.bytes_per_token) == (
        weights.bytes,
        weights.bytes_per_token,
    )
    assert computed.tied_embeddings == weights.tied_embeddings
    header = PUBLISHED.get(entry.name, computed.bytes) - computed.bytes
    assert 0 <= header < 2e5


def test_a_model_of_the_catalogue_is_planned_without_the_hub_and_mlx_lm(run, hub, monkeypatch):
    monkeypatch.setattr(trial.Worker, "ask", None)
    for entry in HUB:
        assert find_model(ModelSpec(entry.name), stated=True) == as_model(entry)
    result = run("plan", "--model", "Qwen3.5-2B-4bit", *PHONE)
    document = schemas.check(json.loads(result.stdout), "plan")
    assert document["models"][0]["model"] == "mlx-community/Qwen3.5-2B-4bit"
    terms = {term["name"]: term for term in document["models"][0]["plans"][0]["terms"]}
    assert (terms["weights"]["bytes"], terms["weights"]["known"]) == (1_059_315_904, "stated")
    assert terms["recurrent state"]["bytes"] == 18 * (3 * 6144 * 2 + 16 * 128 * 128 * 4)
    assert hub.requests == []


def test_what_is_kept_of_a_model_is_planned_rather_than_what_the_catalogue_states(run, hub):
    hub.add("mlx-community/Qwen3-0.6B-4bit", repository())
    plan = ("plan", "--model", "Qwen3-0.6B-4bit", *PHONE)
    assert run("models", "Qwen3-0.6B-4bit").exit_code == 0
    count = len(hub.requests)
    weights = json.loads(run(*plan).stdout)["models"][0]["plans"][0]["terms"][0]
    assert (weights["bytes"], weights["known"]) == (ALL, "exact")
    assert len(hub.requests) == count
    run(*plan, "--revision", "main")
    assert len(hub.requests) > count


def test_the_catalogue_as_json_has_the_bundled_demo_models_own_shapes(run):
    document = schemas.check(json.loads(run("models", "--json").stdout), "models")
    entries = {model["name"]: model for model in document["models"]}
    assert set(entries) == set(known_models())
    config = resolve("demo").config
    assert entries["demo"]["layers"] == len(config.layers)
    assert entries["demo"]["kv_bytes_per_token"] == token_bytes(config)["16"]
    assert entries["Qwen3-4B-4bit"]["kv_bytes_per_token"] == 144 << 10


@pytest.mark.parametrize("entry", HUB, ids=[entry.name for entry in HUB])
def test_an_entry_names_its_license_and_the_source_of_its_results(entry):
    assert entry.license
    assert None not in (entry.tools, entry.thinking)
    if entry.quality is not None:
        assert entry.quality.source.startswith("https://")
        date.fromisoformat(entry.quality.read)
        assert (entry.quality.mmlu_pro, entry.quality.ifeval) != (None, None)


@pytest.mark.parametrize("width", [80, 120])
def test_the_list_of_models_fits_a_terminal_and_shows_the_best_first(run, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    titles, *lines = run("models").stdout.splitlines()
    assert max(map(len, (titles, *lines))) <= width
    names = [line.split()[0] for line in lines[: len(known_models())]]
    assert names == [model.name for model in best_first(known_models().values())]
    assert ("KiB/token" in titles) == (width == 120)
    cells = dict(
        zip(titles.split(), lines[names.index("Qwen3.5-4B-4bit")].split(), strict=False)
    )
    expected = {
        "MMLU-Pro": "79.1*",
        "license": "apache-2.0",
        "tools": "yes",
        "languages": "201",
    }
    assert cells | expected == cells


def test_one_model_is_described(run, tmp_path):
    folder = folder_of(tmp_path / "mine", quantization={"bits": 4, "group_size": 32})
    output = run("models", folder).stdout
    assert "2 full, 2 KV heads of 8" in output
    assert "4 bits, groups of 32" in output
    assert f"{ALL:,} bytes" in output
    document = schemas.check(json.loads(run("models", folder, "--json").stdout), "models")
    model = document["model"]
    assert (model["id"], model["commit"], model["folder"]) == ("mine", "", str(folder))
    assert model["kv_bytes_per_token"] == {"16": 2 * 2 * 2 * 8 * 4}
    assert model["weights"]["bytes"] == ALL
    assert model["published"] is None
    assert "license" not in output


def unreachable_hub(*_arguments, **_options):
    raise unreachable("mlx-community/Qwen3.5-4B-MLX-4bit")


def test_what_is_published_of_a_model_is_shown_without_the_hub_too(run, monkeypatch):
    monkeypatch.setattr("h2o_pack.hub.resolve.hub_contents", unreachable_hub)
    output = " ".join(run("models", "Qwen3.5-4B-4bit").stdout.replace("│", " ").split())
    quality = known_models()["Qwen3.5-4B-4bit"].quality
    for text in (
        "license apache-2.0 tools yes thinking yes languages 201",
        "MMLU-Pro 79.1% of questions answered, with thoughts",
        "IFEval 89.8% of instructions followed, with thoughts",
        f"{quality.source} read {quality.read}",
        "8 full, 4 KV heads of 256",
        "note: the hub cannot be reached: layers and sizes are the catalogue's",
    ):
        assert text in output
    document = json.loads(run("models", "Qwen3.5-4B-4bit", "--json").stdout)
    published = schemas.check(document, "models")["model"]["published"]
    assert published["quality"]["mmlu_pro"] == quality.mmlu_pro
    assert published["languages"] == 201
    assert "no published results known" in run("models", "demo").stdout
    assert run("models", "Qwen3.5-4B-4bit@v1").exit_code == ExitCode.NETWORK


def test_a_model_of_the_hub_is_described_without_its_weights(run, hub):
    commit = hub.add("someone/tiny", repository()).refs["main"]
    result = run("models", "someone/tiny", "--json", "--revision", commit)
    model = schemas.check(json.loads(result.stdout), "models")["model"]
    assert (model["commit"], model["folder"]) == (commit, None)
    assert "not downloaded" in run("models", f"someone/tiny@{commit}").stdout


def test_all_problems_of_a_model_are_printed(run, tmp_path):
    folder = folder_of(tmp_path / "bad", vocab_size=None, head_dim="8")
    result = run("models", folder)
    assert result.exit_code == ExitCode.MODEL
    assert [line[:7] for line in result.stderr.splitlines()] == ["error: "] * 2
    document = json.loads(run("models", folder, "--json").stdout)
    assert len(schemas.check(document, "error")["errors"]) == 2


OWN = """
[[model]]
name = "mine"
folder = "models/mine"
source = "my own"

[[model]]
name = "QWEN3-4B-4bit"
hub = "someone/other"
config = {model_type = "llama"}
source = "my own"
"""


@pytest.fixture
def own(tmp_path, monkeypatch) -> Path:
    """The place of the user's own catalogue."""
    monkeypatch.setenv("H2O_PACK_MODELS", str(tmp_path / "own.toml"))
    return tmp_path / "own.toml"


def test_a_users_own_file_extends_and_overrides(run, tmp_path, own):
    folder_of(tmp_path / "models/mine")
    write(own, OWN)
    by_name = {model.name: model for model in catalogue()}
    assert by_name["mine"].folder == str(tmp_path / "models/mine")
    assert find("qwen3-4b-4bit").hub == "someone/other"
    assert "Qwen3-4B-4bit" not in by_name
    assert len(by_name) == len(known_models()) + 1
    result = run("models", "mine")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("mine")


def test_it_is_found_by_a_variable_or_in_the_settings(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    write(tmp_path / "h2o-pack/models.toml", OWN)
    assert find("mine") is not None
    write(tmp_path / "other.toml", OWN.replace("mine", "yours"))
    monkeypatch.setenv("H2O_PACK_MODELS", str(tmp_path / "other.toml"))
    assert find("mine") is None
    assert find("yours") is not None


GOOD = '[[model]]\nname = "a"\nhub = "b/c"\nsource = "s"\n'


@pytest.mark.parametrize(
    ("text", "what", "line"),
    [
        ("\udcff", "the file is not TOML", None),
        ("model = 3", "model must be a list of tables, each of which begins with", None),
        (GOOD + GOOD, '[[model]] "a" occurs twice', 5),
        (GOOD + "weights_bytes = -1", "Expected `int` >= 0 - at `$.weights_bytes`", 1),
        (GOOD + 'folder = "x"', "must have either hub or folder", 1),
        (
            GOOD + 'quality = {source = "s"}',
            "missing required field `read` - at `$.quality`",
            1,
        ),
        (GOOD + 'quality = {source = "s", read = "r", mmlu = 1}', "unknown field `mmlu`", 1),
        ('\n[[model]]\nname = "a"\nsource = "s"', "must have either hub or folder", 2),
        (GOOD.replace("b/c", "") + 'bundled = "demo"', "must have either hub", 1),
        (GOOD.replace('"a"', '"a@b"'), "'a@b' cannot be the name of a model", 1),
    ],
)
def test_an_entry_that_does_not_fit_is_named_with_its_line(own, text, what, line):
    own.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UserError) as error:
        catalogue()
    assert error.value.code == ExitCode.USAGE
    assert what in error.value.what
    assert error.value.where == (f"{own}:{line}" if line else str(own))


def test_all_entries_that_do_not_fit_are_told_together(own):
    write(own, GOOD.replace('"a"', "1") + GOOD.replace("hub", "hob"))
    with pytest.raises(UserError) as error:
        catalogue()
    assert [problem.where for problem in error.value.errors] == [f"{own}:1", f"{own}:5"]


@pytest.mark.usefixtures("own")
def test_a_catalogue_that_is_not_there_is_named(run):
    result = run("models")
    assert result.exit_code == ExitCode.USAGE
    assert "cannot read the file: No such file" in result.stderr


def test_windows_and_states_are_counted_apart():
    layers = (
        Layer("sliding", 2, 8, 4, window=10),
        Layer("recurrent", state_bytes=100),
        Layer("full", 2, 8, 8, state_bytes=7),
    )
    config = ModelConfig("x", layers, 4, 32, 64, 100, 256, "bfloat16")
    assert fixed_bytes(config) == {"windows": 10 * 2 * 12 * 2, "states": 107}
    assert token_bytes(config) == {"16": 2 * 16 * 2}


@pytest.mark.parametrize("name", ["Qwen3-4B-4bit", "mlx-community/Qwen3-4B-4bit"])
def test_a_hub_id_is_its_short_name_and_needs_no_network(run, name, monkeypatch):
    monkeypatch.setattr("h2o_pack.hub.resolve.hub_contents", None)
    result = run("plan", "--model", name.lower(), "--max-kv", "512", *PHONE[2:4])
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("Qwen3-4B-4bit fits on")
