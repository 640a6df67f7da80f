"""`ios --adapter`: a LoRA adapter beside the model's weights."""

import json
import shutil

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten
from mlx_lm.models.cache import load_prompt_cache
from mlx_lm.tuner.utils import linear_to_lora_layers

from h2o_pack.bundling import manifest
from h2o_pack.errors import ExitCode
from h2o_pack.files.paths import ADAPTER, ADAPTER_CONFIG, SYSTEM_PROMPT
from h2o_pack.measure.models import load
from h2o_py import H2OConfig
from h2o_py.models import make_h2o_cache
from h2o_py.routing import routed
from tests.bridge import schemas
from tests.bridge.trees import names

PARAMETERS = {"rank": 4, "scale": 10.0, "dropout": 0.0}
IDS = [5, 17, 3, 99]


@pytest.fixture(scope="module")
def adapter(tmp_path_factory):
    """Adapt all linear layers of the demo model at random, as mlx_lm.lora saves it."""
    folder = tmp_path_factory.mktemp("adapter")
    mx.random.seed(1)
    model, _ = load("demo")
    model.freeze()
    keys = ["self_attn.q_proj", "self_attn.v_proj", "mlp.down_proj"]
    linear_to_lora_layers(model, -1, {**PARAMETERS, "keys": keys})
    tensors = dict(tree_flatten(model.trainable_parameters()))
    tensors = {name: 0.05 * mx.random.normal(tensor.shape) for name, tensor in tensors.items()}
    mx.save_safetensors(str(folder / "adapters.safetensors"), tensors)
    settings = {
        "num_layers": len(model.layers),
        "lora_parameters": {**PARAMETERS, "keys": keys},
    }
    (folder / "adapter_config.json").write_text(json.dumps(settings), "utf-8")
    return folder


@pytest.fixture
def package(ios, adapter):
    """Package the demo model with the adapter; return the result of the command."""
    return lambda *options, **settings: ios("--adapter", adapter, *options, **settings)


def test_the_bundled_adapter_does_what_the_given_one_does(package, adapter, tmp_path):
    package()
    bundled = tmp_path / "bundled"
    bundled.mkdir()
    for name, of_mlx_lm in (
        (ADAPTER, "adapters.safetensors"),
        (ADAPTER_CONFIG, "adapter_config.json"),
    ):
        shutil.copyfile(tmp_path / "Demo/Model" / name, bundled / of_mlx_lm)
    ids = mx.array([IDS])
    original, own = (load("demo", str(folder))[0](ids) for folder in (adapter, bundled))
    assert mx.array_equal(own, original)
    assert not mx.array_equal(own, load("demo")[0](ids))


def test_no_file_of_it_is_one_that_would_be_loaded_as_weights(package, tmp_path):
    package()
    files = names(tmp_path / "Demo/Model")
    assert [name for name in files if name.endswith(".safetensors")] == ["model.safetensors"]
    assert {ADAPTER, ADAPTER_CONFIG} < set(files)


def test_the_plan_counts_its_bytes(package, adapter, ios):
    before = json.loads(ios("--dry-run", "--json").stdout)
    document = schemas.check(json.loads(package("--json").stdout), "ios")
    size = sum(
        tensor.nbytes for tensor in mx.load(str(adapter / "adapters.safetensors")).values()
    )
    [plain], [adapted] = before["models"], document["models"]
    assert (plain["adapter"], adapted["adapter"]["bytes"]) == (None, size)
    assert adapted["adapter"]["keys"] == [
        "mlp.down_proj",
        "self_attn.q_proj",
        "self_attn.v_proj",
    ]
    assert weights(adapted) == weights(plain) + size


def weights(model):
    """Return the bytes of weights in a plan."""
    terms = {term["name"]: term["bytes"] for term in model["memory"]["terms"]}
    return terms["weights"]


def test_an_adapted_model_is_another_model(package, run, tmp_path, demo_package):
    package()
    assert manifest.read(tmp_path / "Demo").digest != manifest.read(demo_package).digest
    assert run("verify", tmp_path / "Demo").exit_code == 0


def test_the_system_prompt_is_read_by_the_adapted_model(package, adapter, tmp_path):
    prompt = tmp_path / "system.txt"
    prompt.write_text("Answer in one sentence.", "utf-8")
    package("--system", prompt)
    source = tmp_path / "Demo/Model" / SYSTEM_PROMPT
    file = shutil.copyfile(source, tmp_path / "prompt.safetensors")
    caches, metadata = load_prompt_cache(str(file), return_metadata=True)
    ids = json.loads(metadata["tokens"])
    adapted, plain = (keys_after(ids, path) for path in (str(adapter), None))
    assert mx.array_equal(caches[-1].keys, adapted)
    assert not mx.array_equal(caches[-1].keys, plain)


def keys_after(ids, adapter):
    """Return the keys of the last layer after the demo model has read pinned tokens."""
    model, _ = load("demo", adapter)
    caches = make_h2o_cache(model, H2OConfig(96, pinned=((0, len(ids)),)))
    with routed():
        mx.eval(model(mx.array([ids]), cache=caches))
    return caches[-1].keys


def test_an_adapter_of_another_model_is_refused_before_anything_is_written(
    package, adapter, tmp_path
):
    tensors = mx.load(str(adapter / "adapters.safetensors"))
    copy = shutil.copytree(adapter, tmp_path / "other")
    wide = {
        name: mx.concatenate([tensor, tensor])
        for name, tensor in tensors.items()
        if name.endswith(".lora_a")
    }
    mx.save_safetensors(str(copy / "adapters.safetensors"), {**tensors, **wide})
    result = package("--adapter", copy, code=ExitCode.MODEL)
    assert "inputs and" in result.stderr
    assert "Demo" not in names(tmp_path)
