"""Models that an app cannot carry, and the layout that brings them apart from it."""

from __future__ import annotations

import dataclasses

import pytest

from h2o_pack.bundling.app_size import check_app_size
from h2o_pack.errors import ExitCode, UserError
from h2o_pack.facts import store_limits
from h2o_pack.package.contents import make_package
from h2o_pack.plan.package_plan import CacheOptions, make_plan
from tests.bridge.bundling.sources import File, Model
from tests.bridge.models.checkpoints import sparse_checkpoint
from tests.bridge.refusals import refused
from tests.bridge.trees import tree


@pytest.fixture
def plan(model):
    return dataclasses.replace(make_plan(model, CacheOptions(max_kv=512)), asset_pack=True)


@dataclasses.dataclass(frozen=True)
class Sized(Model):
    @property
    def size(self):
        return sum(file.size for file in self.files)


def sized(size):
    return Sized("someone/large", (File("model.safetensors", size),))


def test_a_model_that_makes_the_app_too_large_is_refused_with_the_way_out():
    check_app_size(sized(4_000_000_000), asset_pack=False)
    assert refused(
        check_app_size, sized(4_607_731_712), asset_pack=False, code=ExitCode.USAGE
    ) == (
        "someone/large has 4.61 GB, more than Apple's limit for an uncompressed app, 4 GB "
        f"({store_limits()['app'].source}). Give --asset-pack, so that it comes apart from the "
        "app, or choose a smaller model or fewer bits."
    )


def test_an_asset_pack_has_a_limit_too():
    check_app_size(sized(4_607_731_712), asset_pack=True)
    with pytest.raises(UserError, match=r"200 GB compressed .*\. Choose a smaller"):
        check_app_size(sized(200_000_000_001), asset_pack=True)


def test_a_too_large_model_is_refused_before_anything_is_written(model, run, tmp_path):
    tensors = {"w2": ("U8", [4_100_000_000])}
    sparse_checkpoint(model.folder / "model-2.safetensors", tensors)
    output = tmp_path / "Demo"
    command = ("ios", "--model", model.folder, "--max-kv", 256, "--output", output)
    result = run(*command)
    assert result.exit_code == 2
    assert "Give --asset-pack" in result.stderr
    assert not output.exists()


def test_the_model_lies_in_the_package_as_always(plan, tmp_path):
    made = make_package(plan, tmp_path / "Demo")
    assert "Model/model.safetensors" in tree(made.folder)
    assert "AssetPack/Manifest.json" in made.files
