"""What is chosen where something is left open."""

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from h2o_pack.choice.choose import (
    LEAST_SPEED,
    Criteria,
    Question,
    candidates_of,
    choose,
    chosen_model,
)
from h2o_pack.choice.losses import (
    NO_LOSS,
    Loss,
    LossTable,
    MeasuredLoss,
    read_losses,
)
from h2o_pack.devices.catalogue import Device
from h2o_pack.errors import ExitCode, UserError
from h2o_pack.facts import KnownModel, Quality
from h2o_pack.measure.evaluation import evaluation_report as compare
from h2o_pack.measure.evaluation.evaluation_report import losses as losses_of
from h2o_pack.model import Model
from h2o_pack.models.catalogue import as_model
from h2o_pack.progress import silent
from h2o_pack.results import to_json
from h2o_pack.spec import CacheSpec, DevicesSpec, ModelSpec, PackageSpec
from h2o_py.storages import STORAGE_BITS
from tests.bridge import schemas

GB = 10**9


def known(name: str, weights: int, *, context: int = 32768, **config: Any) -> KnownModel:
    """A plain transformer of the catalogue: 128 KiB of keys and values per token."""
    shapes = {
        "model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 32,
        "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
        "intermediate_size": 6144, "vocab_size": 32000, "max_position_embeddings": context,
        "tie_word_embeddings": True,
    }  # fmt: skip
    return KnownModel(
        name, "here", hub=f"org/{name}", config={**shapes, **config}, weights_bytes=weights
    )


CATALOGUE = (known("small", GB), known("large", 3 * GB), known("medium", 2 * GB))


def device(limit: int | None, name: str = "phone", bandwidth: int | None = 50 * GB) -> Device:
    """A phone on which an app with both entitlements may use so many bytes."""
    return Device(name, name, "", "A", "iphone", None, None, limit, bandwidth, ())


def measured(
    kv: str, share: float, kl: float, *, recall: bool = True, loses_answers: bool = False
) -> MeasuredLoss:
    """A cache in the table."""
    return MeasuredLoss(kv, share, recall and share < 1, Loss(kl, loses_answers))


def table(*caches: MeasuredLoss) -> LossTable:
    """A table; without caches one in which fewer bits lose less than fewer rows."""
    usual = (
        measured("16", 0.125, 0.3),
        measured("8", 0.25, 0.1),
        measured("8", 1.0, 0.001),
        measured("4", 0.5, 0.2),
        measured("4", 1.0, 0.01),
    )
    return LossTable(
        model="measured",
        parameters_sha256="",
        text="",
        samples=12,
        tokens=1024,
        caches=caches or usual,
    )


def question(*limits: int, model: Model | None = None, **settings: Any) -> Question:
    """What is asked for devices of these limits and 8,192 tokens, all else open.

    given: fields of the cache, and `min_speed`.
    """
    min_speed = settings.pop("min_speed", 0.0)
    devices = tuple(device(limit, f"phone {i}") for i, limit in enumerate(limits))
    spec = PackageSpec((ModelSpec(cache=CacheSpec(**{"context": 8192, **settings})),))
    return Question(spec, devices, model, min_speed)


def chosen(candidates):
    """The name of the chosen model and its cache."""
    return candidates.chosen.model, candidates.chosen.cache


def reasons(candidates):
    """Why each model that was not chosen was refused."""
    return {model.model: model.refused.reason for model in candidates.models if model.refused}


def test_the_best_model_that_fits_gets_the_full_context_in_16_bits_where_that_fits():
    candidates = candidates_of(question(6 * GB), CATALOGUE, table())
    model, cache = chosen(candidates)
    assert (model, cache.kv, cache.max_kv, cache.recall) == ("large", "16", None, False)
    assert reasons(candidates) == {"medium": "lower quality", "small": "lower quality"}


def test_published_results_count_before_the_size():
    def published(entry, **results):
        return replace(entry, quality=Quality("https://here", "2026-11-29", **results))

    small, large, medium = CATALOGUE
    rated = (
        large,
        published(medium, ifeval=90.0),
        published(small, mmlu_pro=20.0, ifeval=50.0),
        replace(published(small, mmlu_pro=20.0, ifeval=60.0), name="obedient"),
    )
    candidates = candidates_of(question(6 * GB), rated, table())
    names = [candidate.model for candidate in candidates.models]
    assert names == ["obedient", "small", "medium", "large"]
    assert candidates.chosen.model == "obedient"
    assert candidates.models[1].quality.mmlu_pro == 20.0
    assert candidates.models[-1].quality is None


def test_else_it_gets_the_full_context_in_fewer_bits_if_those_lose_less_than_fewer_rows():
    caches = [
        chosen(candidates_of(question(limit * GB // 10), CATALOGUE, table()))[1]
        for limit in (52, 44)
    ]
    assert [(cache.kv, cache.max_kv, cache.recall) for cache in caches] == [
        ("8", None, False),
        ("4", None, False),
    ]


def test_else_as_many_rows_as_fit_at_the_bits_that_lose_least_with_recall_from_files():
    losses = table(
        measured("16", 0.125, 0.3), measured("8", 0.125, 0.2), measured("8", 1.0, 0.01)
    )
    query = question(int(4.4 * GB))
    candidates = candidates_of(query, CATALOGUE, losses)
    model, cache = chosen(candidates)
    assert (model, cache.kv, cache.recall) == ("large", "8", True)
    assert 1024 < cache.max_kv < 8192
    filled = chosen_model(query, candidates).cache
    assert (filled.recall, filled.archive, filled.max_kv) == (True, "files", cache.max_kv)


def test_the_rows_are_the_most_that_leave_the_margin():
    candidates = candidates_of(
        question(int(4.6 * GB)), CATALOGUE, table(measured("16", 0.125, 0.3))
    )
    _, cache = chosen(candidates)
    assert cache.headroom_share >= candidates.margin
    more = question(int(4.6 * GB), max_kv=cache.max_kv + 64, kv="16", recall=True)
    assert candidates_of(more, CATALOGUE, table()).chosen.model != "large"


def test_the_table_decides_the_order():
    rows_first = table(
        measured("16", 0.125, 0.001), measured("8", 0.25, 0.5), measured("8", 1.0, 0.4)
    )
    _, cache = chosen(candidates_of(question(int(5.2 * GB)), CATALOGUE, rows_first))
    assert cache.kv == "16"
    assert cache.max_kv < 8192


def test_without_recall_the_losses_of_eviction_alone_decide():
    losses = table(
        measured("16", 0.125, 0.01),
        measured("16", 0.125, 0.5, recall=False, loses_answers=True),
        measured("8", 1.0, 0.1),
    )
    limit = int(5.2 * GB)
    with_recall = chosen(candidates_of(question(limit), CATALOGUE, losses))[1]
    without = chosen(candidates_of(question(limit, recall=False), CATALOGUE, losses))[1]
    assert (with_recall.kv, with_recall.recall) == ("16", True)
    assert (without.kv, without.max_kv) == ("8", None)


def test_answers_that_are_lost_for_certain_count_before_divergence():
    losses = table(measured("8", 1.0, 0.001, loses_answers=True), measured("4", 1.0, 0.5))
    _, cache = chosen(candidates_of(question(int(5.2 * GB)), CATALOGUE, losses))
    assert cache.kv == "4"


def test_fewer_rows_than_were_ever_measured_are_never_chosen():
    losses = table(measured("16", 0.9, 0.3))
    assert chosen(candidates_of(question(int(4.6 * GB)), CATALOGUE, losses))[0] == "medium"


def test_a_storage_that_was_never_measured_is_never_chosen():
    candidates = candidates_of(question(int(5.2 * GB)), CATALOGUE, table())
    reasons_by_storage = {
        cache.kv: cache.refused.reason for cache in candidates.caches if cache.refused
    }
    assert reasons_by_storage["heavy=4,recent=8"] == "not measured"


def test_several_devices_get_what_serves_all_of_them():
    candidates = candidates_of(question(6 * GB, int(3.3 * GB)), CATALOGUE, table())
    alone = candidates_of(question(int(3.3 * GB)), CATALOGUE, table())
    assert chosen(candidates) == chosen(alone)
    assert chosen(candidates)[0] == "medium"


def test_given_options_are_kept_and_others_are_chosen():
    kv = candidates_of(question(6 * GB, kv="4"), CATALOGUE, table())
    assert (chosen(kv)[0], chosen(kv)[1].kv) == ("large", "4")
    rows = candidates_of(question(6 * GB, max_kv=512), CATALOGUE, table())
    assert chosen(rows)[1].max_kv == 512
    evicts = table(measured("16", 0.125, 0.3, recall=False))
    no_recall = candidates_of(question(int(4.6 * GB), recall=False), CATALOGUE, evicts)
    assert not chosen(no_recall)[1].recall
    small = candidates_of(question(6 * GB, model=as_model(CATALOGUE[0])), CATALOGUE, table())
    assert chosen(small)[0] == "org/small"


def test_a_floor_on_speed_holds_after_ten_minutes():
    fast = candidates_of(question(6 * GB, min_speed=8), CATALOGUE, table())
    assert chosen(fast)[0] != "large"
    assert chosen(fast)[1].sustained >= 8
    assert reasons(fast)["large"] == "speed"


def test_an_unknown_speed_does_not_reach_a_floor():
    query = question(6 * GB, min_speed=1)
    query = replace(query, devices=(device(6 * GB, bandwidth=None),))
    candidates = candidates_of(query, CATALOGUE, table())
    assert candidates.chosen is None
    assert set(reasons(candidates).values()) == {"speed"}


def test_each_refusal_says_why():
    models = (
        *CATALOGUE,
        known("short", 2 * GB, context=4096),
        known("huge", 9 * GB),
        known("full", int(3.97 * GB)),  # beside the app's code and the tokenizer
        known("thick", int(3.9 * GB)),
        type(CATALOGUE[0])("unstated", "here", hub="org/unstated"),
    )
    candidates = candidates_of(question(int(4.2 * GB)), models, table())
    assert reasons(candidates) == {
        "huge": "app size",
        "full": "app size",
        "thick": "memory",
        "medium": "lower quality",
        "short": "lower quality",
        "small": "lower quality",
        "unstated": "no shapes",
    }
    only = candidates_of(question(6 * GB), (models[3],), table())
    assert reasons(only) == {"short": "context"}


def test_nothing_that_fits_is_an_error_with_a_reason():
    query = question(GB)
    candidates = candidates_of(query, CATALOGUE, table())
    assert candidates.chosen is None
    with pytest.raises(UserError, match=r"small: needs 1\.15 GB without a cache") as error:
        chosen_model(query, candidates)
    assert error.value.code == ExitCode.MEMORY


def test_a_device_of_unknown_memory_is_refused():
    with pytest.raises(UserError, match="it is unknown how much memory"):
        candidates_of(question(None), CATALOGUE, table())


# Several models


LARGE, SMALL = "Qwen3-4B-4bit", "Qwen3-0.6B-4bit"
OLD, NEW = "iPhone 12", "iPhone 16 Pro"


def settled(*models, devices=(OLD, NEW), max_kv=None):
    cache = CacheSpec(max_kv=max_kv)
    spec = PackageSpec(
        tuple(ModelSpec(model, cache) for model in models), devices=DevicesSpec(devices)
    )
    return choose(spec, Criteria(), silent)


def test_each_model_gets_a_cache_for_the_devices_that_can_hold_it():
    choice = settled(SMALL, LARGE)
    small, large = choice.spec.models
    assert (small.model, large.model) == (SMALL, LARGE)
    assert small.cache.kv != large.cache.kv == "16"
    assert small.cache.max_kv is large.cache.max_kv is None
    assert choice.choices[SMALL].devices == (OLD, NEW)
    assert choice.choices[LARGE].devices == (NEW,)


def test_a_device_that_can_hold_no_model_is_named_with_each_reason():
    with pytest.raises(UserError) as error:
        settled(LARGE, "Qwen3-8B-4bit", devices=(OLD,))
    messages = [problem.what for problem in error.value.errors]
    assert len(messages) == 2
    assert all(f"on {OLD}" in text for text in messages)


def test_a_model_that_is_unknown_is_no_device_that_is_too_small():
    with pytest.raises(UserError, match="there is no model"):
        settled(SMALL, "no-such-model")


# The table of losses


def test_a_measured_share_has_its_own_loss_and_those_between_lie_on_a_line_over_the_logarithm():
    losses = table(measured("8", 0.25, 0.3), measured("8", 1.0, 0.1))
    assert losses.loss("8", 0.25, recall=True).kl == pytest.approx(0.3)
    assert losses.loss("8", 0.5, recall=True).kl == pytest.approx(0.2)
    assert losses.loss("8", 1.0, recall=True).kl == pytest.approx(0.1)


def test_all_rows_in_16_bits_lose_nothing():
    assert table().loss("16", 1.0, recall=False) == NO_LOSS


def test_between_shares_the_answers_are_those_of_fewer_rows():
    losses = table(measured("8", 0.25, 0.3, loses_answers=True), measured("8", 1.0, 0.1))
    assert losses.loss("8", 0.9, recall=True).loses_answers
    assert not losses.loss("8", 1.0, recall=True).loses_answers


def test_fewer_rows_than_were_measured_have_no_loss():
    assert table(measured("8", 0.25, 0.3)).loss("8", 0.2, recall=True) is None
    assert table(measured("8", 0.25, 0.3)).loss("4", 0.5, recall=True) is None


def test_recall_has_losses_of_its_own_where_tokens_are_evicted():
    losses = table(
        measured("8", 0.25, 0.4, recall=False), measured("8", 0.25, 0.1), measured("8", 1.0, 0)
    )
    assert losses.loss("8", 0.25, recall=False).kl == pytest.approx(0.4)
    assert losses.loss("8", 0.25, recall=True).kl == pytest.approx(0.1)
    assert losses.loss("8", 1.0, recall=True) == losses.loss("8", 1.0, recall=False)


def test_a_table_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "losses.json"
    path.write_text(to_json(table()))
    assert read_losses(path) == table()


def test_a_file_that_is_no_table_is_refused(tmp_path):
    path = tmp_path / "losses.json"
    path.write_text(json.dumps({"format": 1, "model": "x"}))
    with pytest.raises(UserError, match="is not a table of losses"):
        read_losses(path)


def test_the_bundled_table_has_every_useful_storage_with_all_rows_and_most_with_fewer():
    losses = read_losses()
    for kv, bits in STORAGE_BITS.items():  # rows are first stored in the bits of recent tokens
        is_useful = bits.recent is None or bits.recent > bits.key
        assert (losses.loss(kv, 1.0, recall=True) is not None) == is_useful, kv
    for kv in ("16", "8", "k8v4", "4", "heavy=4,recent=8"):
        assert min(losses.points(kv, recall=False)) < 0.5
    assert min(losses.points("16", recall=True)) <= 1 / 16


def test_a_report_without_a_full_cache_in_few_bits_gives_no_table():
    chat = compare.read(Path(__file__).parents[3] / "docs/results/chat/results.json")
    (experiment,) = chat.experiments
    groups = tuple(
        replace(group, cells=tuple(c for c in group.cells if "/" not in c.contender))
        for group in experiment.groups
    )
    without = replace(chat, experiments=(replace(experiment, groups=groups),))
    assert losses_of(without) is None


def test_the_bundled_table_is_what_the_committed_evaluation_gives():
    folder = Path(__file__).parents[3] / "docs/results/chat"
    report = compare.read(folder / "results.json")
    assert losses_of(report) == read_losses()


# The commands


PHONE = ("--device", "iPhone 15", "--context", "16384")


def test_plan_shows_the_candidates_and_why_each_was_refused(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    result = run("plan", *PHONE, "--min-speed", "1")
    assert result.exit_code == 0, result.output
    assert "chosen" in result.stdout
    assert "over the store's 4.00 GB" in result.stdout
    shown = " ".join(result.stdout.split())
    assert "GB: weights; app: GB to download. Qwen3.5-4B-4bit: about 2." in shown
    lines = [line for line in result.stdout.splitlines() if not line.startswith("equivalent")]
    assert max(map(len, lines)) <= 80
    ends = {line.rstrip().rpartition("  ")[2] for line in lines}
    assert {"loses more", "not measured"} <= ends
    schemas.check(json.loads(run("plan", *PHONE, "--json").stdout), "plan")


def test_a_model_is_chosen_that_stays_fast_enough_to_read_unless_the_user_says_otherwise(run):
    def chosen_by(*options):
        document = json.loads(run("plan", *PHONE, *options, "--json").stdout)
        (choice,) = [model for model in document["models"] if model["refused"] is None]
        return choice["weights"], choice["cache"]["sustained"]

    assert chosen_by()[1] >= LEAST_SPEED > chosen_by("--min-speed", "1")[1]
    assert chosen_by()[0] < chosen_by("--min-speed", "1")[0]


def test_the_equivalent_options_plan_what_was_chosen(run):
    shown = run("plan", *PHONE).stdout.splitlines()[-1]
    options = shlex.split(shown.removeprefix("equivalent options: "))
    document = json.loads(run("plan", *options, "--device", "iPhone 15", "--json").stdout)
    candidates = json.loads(run("plan", *PHONE, "--json").stdout)["models"]
    (choice,) = [candidate for candidate in candidates if candidate["refused"] is None]
    [model] = document["models"]
    assert model["max_kv"] == choice["cache"]["max_kv"]
    assert model["plans"][0]["total"] == choice["cache"]["needed"]
    assert model["devices"][0]["entitled"]["verdict"] == "fits"


def test_options_that_plan_cannot_use_are_refused(run):
    for options in ((*PHONE, "--all"), ("--model", "demo", "--asset-pack")):
        result = run("plan", *options)
        assert result.exit_code == ExitCode.USAGE
        assert "plan cannot use" in result.stderr


def test_ios_makes_what_was_chosen_for_a_model(run, tmp_path):
    output = tmp_path / "Demo"
    arguments = ("ios", "--model", "demo", "--device", "iPhone 15", "--output", output)
    document = json.loads(run(*arguments, "--no-vendor", "--json").stdout)
    [model] = document["models"]
    assert model["kv"] == "16"
    assert model["choice"]["context"] == 2048
    assert model["choice"]["caches"][0]["max_kv"] is None
    assert (output / "Package.swift").is_file()
    shown = run(*arguments, "--dry-run").stdout
    assert "demo keeps all 2,048 tokens (kv 16), so it forgets nothing" in shown
    assert "loses more" not in shown  # `plan` compares


def test_a_table_of_one_s_own_decides(run, tmp_path):
    path = tmp_path / "losses.json"
    path.write_text(to_json(table(measured("4", 1.0, 0.001), measured("4", 0.125, 0.002))))
    document = json.loads(
        run("plan", *PHONE, "--min-speed", "1", "--losses", path, "--json").stdout
    )
    (choice,) = [model for model in document["models"] if model["refused"] is None]
    assert (choice["cache"]["kv"], document["losses_of"]) == ("4", "measured")


def test_where_nothing_fits_plan_still_shows_why_and_ends_with_8(run):
    options = (*PHONE, "--kv", "16", "--min-speed", "1000")
    result = run("plan", *options)
    assert result.exit_code == ExitCode.MEMORY
    assert "less than 1000" in result.stdout
    refusal = run("ios", *options)
    assert refusal.exit_code == ExitCode.MEMORY
    assert "no model fits for 16,384 tokens on iPhone 15" in refusal.stderr


def test_what_is_open_needs_a_device(run):
    for arguments in (["ios"], ["plan"]):
        result = run(*arguments)
        assert result.exit_code == ExitCode.USAGE
        assert "--device" in result.stderr


@pytest.mark.parametrize("option", [("--min-speed", "5"), ("--losses", "table.json")])
def test_options_of_a_choice_need_something_to_choose(run, tmp_path, option):
    (tmp_path / "table.json").write_text(to_json(table()))
    arguments = [
        tmp_path / argument if argument.endswith("json") else argument for argument in option
    ]
    for command in (("ios", "--dry-run"), ("plan",)):
        result = run(*command, "--model", "demo", "--max-kv", "64", *arguments)
        assert result.exit_code == ExitCode.USAGE
        assert "nothing is left to choose" in result.stderr


def test_no_rows_are_not_the_default(run):
    result = run("plan", "--model", "demo", "--max-kv", "0")
    assert result.exit_code == ExitCode.USAGE
    assert "--max-kv must be between 1 and" in result.stderr
