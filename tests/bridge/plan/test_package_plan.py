import json
import re

import pytest

from h2o_pack.errors import ExitCode, UserError
from h2o_pack.plan.workload import read_budgets
from h2o_pack.spec import CacheSpec
from h2o_py.config import H2OConfig, H2ORecall
from tests.bridge.memory import described
from tests.bridge.plans import plan_of
from tests.bridge.trees import resolve
from tests.messages import refused, says


def model_plan(model, cache, *arguments, **options):
    """The plan of the one model of a package."""
    return plan_of(model, cache, *arguments, **options).models[0]


def test_settings_left_out_have_the_defaults_of_the_cache(model):
    plan = model_plan(model, CacheSpec(max_kv=512))
    assert (plan.cache, plan.archive) == (
        H2OConfig(512, recall=H2ORecall(archive_bits=16)), "files"
    )  # fmt: skip
    assert model_plan(model, CacheSpec(max_kv=512, recall=False)).cache == H2OConfig(512)
    assert plan.warnings == ()


def test_the_package_is_named_after_the_model_or_as_asked(model):
    options = CacheSpec(max_kv=256)
    assert plan_of(model, options).package_name == "tiny"
    plan = plan_of(model, options, "My App")
    assert (plan.package_name, plan.module_name) == ("My-App", "MyApp")


def test_a_short_recent_window_is_remarked_upon_once(model):
    plan = model_plan(model, CacheSpec(max_kv=64))
    (remark,) = [
        warning for warning in plan.warnings if "newest" in warning or "recent" in warning
    ]
    assert remark.startswith("fewer than 64 of the newest tokens")


def test_storage_and_context_reach_the_memory_plan():
    plans = [
        model_plan(resolve("demo"), CacheSpec(max_kv=256, kv=kv, context=512, prefill_step=64))
        for kv in ("16", "mixed")
    ]
    assert [plan.storage.name for plan in plans] == ["16", "heavy=8,recent=16"]
    assert all((plan.memory.context, plan.memory.prefill_step) == (512, 64) for plan in plans)
    assert plans[1].memory.caches < plans[0].memory.caches


def test_each_layer_gets_its_own_budgets_from_a_file(model, tmp_path):
    path = tmp_path / "budgets.json"
    own = {"heavy_budget": 100, "recent_budget": 140}
    path.write_text(json.dumps({"format": 1, "layers": [own, None]}))
    plan = model_plan(model, CacheSpec(max_kv=256, budgets=read_budgets(path)))
    assert [cache.heavy_budget for cache in plan.workload.caches] == [100, 128]
    assert plan.budgets is not None


def test_a_device_that_cannot_hold_the_model_is_refused_with_what_fits():
    devices = ("iPhone 12 mini", "iPhone 15 Pro")
    large, cache = described.model(), CacheSpec(max_kv=512)
    says(refused(plan_of, large, cache, devices=devices, code=ExitCode.MEMORY))


def test_the_nearest_setting_that_fits_is_said_and_does_fit():
    devices = ("iPhone 13 Pro",)
    with pytest.raises(UserError) as error:
        plan_of(described.model(), CacheSpec(max_kv=12000), devices=devices)
    match = re.search(r"--max-kv (\d+)", error.value.remedy)
    assert match is not None
    rows = int(match[1])
    assert 4000 < rows < 12000
    plan = model_plan(described.model(), CacheSpec(max_kv=rows), devices=devices)
    assert plan.memory.total <= 4.2e9


def budgets_file(tmp_path, *sizes):
    """A file of budgets with these rows for each layer."""
    layers = [{"heavy_budget": 8, "recent_budget": 64, "max_size": size} for size in sizes]
    path = tmp_path / "budgets.json"
    path.write_text(json.dumps({"format": 1, "layers": layers}))
    return path


def test_rows_that_a_file_of_budgets_overrules_are_refused(model, tmp_path):
    path = budgets_file(tmp_path, 128, 256)
    plan = model_plan(model, CacheSpec(max_kv=192, budgets=read_budgets(path)))
    assert plan.workload.max_kv == 192
    with pytest.raises(UserError, match="keeps 192 rows on average") as error:
        model_plan(model, CacheSpec(max_kv=512, budgets=read_budgets(path)))
    assert "Give --max-kv 192" in error.value.remedy


@pytest.mark.parametrize("setting", ["heavy_budget", "recent_budget"])
def test_a_setting_that_a_file_of_budgets_has_for_each_layer_is_refused(
    model, tmp_path, setting
):
    options = CacheSpec(
        max_kv=192,
        budgets=read_budgets(budgets_file(tmp_path, 128, 256)),
        settings={setting: 32},
    )
    with pytest.raises(UserError, match="cannot be given with --budgets") as error:
        model_plan(model, options)
    assert error.value.code == ExitCode.USAGE


@pytest.mark.parametrize("policy", ["standard", "paper"])
def test_the_rows_that_a_refusal_asks_for_are_enough(model, policy):
    pinned = {"pinned": ((0, 300),)}
    with pytest.raises(UserError, match=r"Raise --max-kv to (\d+)") as error:
        model_plan(model, CacheSpec(max_kv=256, policy=policy, settings=pinned))
    enough = int(re.search(r"Raise --max-kv to (\d+)", str(error.value))[1])
    assert model_plan(model, CacheSpec(max_kv=enough, policy=policy, settings=pinned))


def test_a_package_has_a_plan_for_phones_and_one_for_tablets_whatever_device_is_named():
    cache = CacheSpec(max_kv=64, recall=False)
    plan = model_plan(resolve("demo"), cache, devices=("iPhone 15",))
    phone, tablet = plan.memory_of["phone"], plan.memory_of["tablet"]
    assert plan.memory == phone
    assert tablet.prefill > phone.prefill
    assert (tablet.weights, tablet.caches) == (phone.weights, phone.caches)
