"""What recall costs in a plan: bytes of archives, what a recall reads, what else would fit."""

import json

import pytest

from h2o_pack.devices.catalogue import catalogue
from h2o_pack.errors import ExitCode, UserError
from h2o_pack.memory import terms
from h2o_pack.memory.cache_bytes import LayerArchive
from h2o_pack.plan.advice import advice
from h2o_pack.plan.device_fit import remedies
from h2o_pack.plan.speed import estimate, read_seconds, recall_plan
from h2o_pack.plan.workload import workload_of
from h2o_pack.spec import CacheSpec
from h2o_py.budgets import Budgets
from tests.bridge.memory import described
from tests.bridge.schemas import check

CONTEXT = 16384
QWEN3_4B = described.model()
QWEN3_LAYER = QWEN3_4B.config.layers[0]


def request(context=CONTEXT, budgets=None, model=QWEN3_4B, max_kv=512, **options):
    settings = {"max_kv": max_kv, "recall": True, "context": context, "budgets": budgets}
    return workload_of(model, CacheSpec(**settings | options))


def test_an_archived_token_of_qwen3_4b_takes_what_the_formula_says():
    """A key of 128: 64 bytes of words and 4 groups of 2 + 2; keys and values, 8 heads."""
    for bits, vector in ((4, 64 + 16), (8, 128 + 16), (16, 256)):
        archive = LayerArchive(QWEN3_LAYER, bits, 2)
        assert archive.token_bytes == 8 * (2 * vector + 4)
        assert archive.key_bytes == 8 * vector
    plan = recall_plan(request())
    assert plan.bytes_per_token == 46_080 + 36 * 8 * 4
    assert plan.archive_bytes == CONTEXT * plan.bytes_per_token + 64 * 36 * 8 * 2 * 256


def test_a_prompt_reads_keys_twice_and_values_and_a_generated_token_keys():
    plan = recall_plan(request())
    assert (plan.layers, plan.rows) == (36, 64)
    assert plan.read_bytes == (46_080 + 23_040) * CONTEXT + 64 * 46_080
    assert plan.step_bytes == 23_040 * CONTEXT + 64 * 46_080
    (phone,) = catalogue(None).find("iPhone 15 Pro")
    assert read_seconds(plan, phone, 10**9) == round(10**9 / (0.8 * phone.bandwidth), 4)
    in_files = recall_plan(request(archive="files"))
    assert read_seconds(in_files, phone, 10**9) == round(10**9 / 1.45e9, 3)


def test_a_prompt_multiplies_queries_with_all_keys_and_values():
    """32 queries of 32 heads read keys twice and values once; of 4.02 billion weights."""
    plan = recall_plan(request())
    multiply_adds = 36 * 32 * 32 * 3 * 128 * CONTEXT
    assert plan.prompt_tokens == pytest.approx(multiply_adds / 4.02e9, rel=0.01)


def test_recalls_while_generating_slow_it_by_their_reads():
    (phone,) = catalogue(None).find("iPhone 15 Pro")
    plain, often, seldom, in_files = (
        estimate(request(**options), phone).sustained
        for options in (
            {}, {"recall_every": 4}, {"recall_every": 64},
            {"recall_every": 4, "archive": "files"},
        )
    )  # fmt: skip
    assert in_files < often < seldom <= plain
    seconds = (23_040 * CONTEXT + 64 * 46_080) / (0.8 * phone.bandwidth)
    assert often == pytest.approx(1 / (1 / plain + seconds / 4), rel=0.02)


def test_without_recall_there_are_no_terms_of_it():
    plain = request(recall=False)
    assert recall_plan(plain) is None
    names = [term.name for term in plain.plan("iphone").terms]
    assert terms.ARCHIVE not in names
    assert terms.RECALL not in names
    plan = request().plan("iphone")
    assert plan.of(terms.ARCHIVE) == recall_plan(request()).archive_bytes
    extra = plan.of(terms.ARCHIVE) + 36 * 8 * 512  # and whether each row is held
    copies = plan.of("ledger copies") - plain.plan("iphone").of("ledger copies")
    assert plan.total - plain.plan("iphone").total == extra + copies
    assert plan.caches - plain.plan("iphone").caches == 36 * 8 * 512


def test_an_archive_in_files_leaves_its_newest_tokens_and_what_waits_in_memory():
    own = request(archive="files", context=CONTEXT + 100)
    plan = recall_plan(own)
    assert plan.file_bytes == CONTEXT * plan.bytes_per_token
    assert own.plan("iphone").of(terms.ARCHIVE) == (
        plan.archive_bytes - plan.file_bytes + (64 << 20)
    )


def test_a_limit_keeps_whole_newest_segments():
    archive = LayerArchive(QWEN3_LAYER, 4, 2, limit=1_000_000)
    assert archive.tokens(500) == 500
    count = archive.tokens(10_100)
    assert count % 256 == 10_100 % 256
    assert count * archive.token_bytes <= archive.limit < (count + 256) * archive.token_bytes


def test_a_plan_says_what_is_beyond_the_limit_of_its_archives():
    """14 segments of 256 tokens with 1,312 bytes each are within 5,000,000 bytes."""
    assert recall_plan(request()).archive_tokens == CONTEXT
    own = request(archive_limit=5_000_000)
    plan = recall_plan(own)
    assert plan.archive_tokens == 14 * 256
    assert plan.archive_bytes == 36 * (14 * 256 * 1312 + 64 * 8 * 2 * 256)
    assert own.plan("iphone").of(terms.ARCHIVE) == plan.archive_bytes
    (line,) = [line for line in advice(own) if "--archive-limit 5000000" in line]
    assert "3,584 of 16,384 tokens" in line
    assert not [line for line in advice(request()) if "--archive-limit" in line]


def test_the_moment_of_a_recall_counts_where_it_is_the_worst():
    assert request(context=2048).plan("iphone").of(terms.RECALL) == 0
    tall = described.model(layers=(QWEN3_LAYER,), heads=64)
    plan = request(context=40960, model=tall, prefill_step=32, max_kv=128).plan("iphone")
    assert plan.of(terms.RECALL) > 32 << 20


@pytest.mark.parametrize(
    ("options", "flags"),
    [
        ({"archive_bits": 8}, "--archive-bits has"),
        ({"archive_limit": 0}, "--archive-limit has"),
        ({"recall_rows": 9, "archive": "files"}, "--recall-rows and --archive have"),
    ],
)
def test_settings_of_recall_need_recall(options, flags):
    with pytest.raises(UserError, match=f"{flags} no effect without recall") as error:
        request(recall=False, **options)
    assert error.value.code == ExitCode.USAGE


def test_heads_that_no_group_divides_are_archived_as_they_come_or_not_at_all():
    narrow = described.model(layers=(described.Layer("full", 8, 80, 80),) * 2)
    with pytest.raises(UserError, match=r"--archive-bits 4 quantizes in groups of 32 .* of 80"):
        request(model=narrow)
    assert recall_plan(request(model=narrow, archive_bits=16)).bytes_per_token == 2 * 8 * 324


def test_budgets_name_the_layers_that_recall():
    budgets = Budgets((None,) * 36, recall=(3, 20))
    plan = recall_plan(request(budgets=budgets))
    assert plan.layers == 2
    assert plan.bytes_per_token == 2 * 1312


def test_what_does_not_fit_may_fit_with_files_or_without_recall():
    own = request(context=40960)
    limit = request(context=40960, recall=False).plan("iphone").total + 100_000_000
    assert list(remedies(own, limit, "iphone"))[:2] == ["--archive files", "--no-recall"]
    in_files = request(context=40960, archive="files")
    assert "--archive files" not in list(remedies(in_files, limit - 50_000_000, "iphone"))


def test_the_most_rows_are_planned_with_their_archive():
    limit = 4_000_000_000
    most = [request(recall=on).largest_max_kv(limit, "iphone") for on in (False, True)]
    assert 0 < most[1] < most[0]


def test_recall_is_compared_with_a_cache_that_keeps_everything():
    (line,) = [line for line in advice(request()) if "forgets nothing" in line]
    assert "--kv rotated4 without --max-kv) takes 679.5 MB" in line
    assert not [line for line in advice(request()) if "under an eighth" in line]
    plain = [line for line in advice(request(recall=False)) if "under an eighth" in line]
    assert plain[0].endswith("or --recall")
    assert len(advice(request(context=512))) == 1
    assert not advice(request(context=512, recall_every=4))


def test_recall_at_prompts_alone_is_remarked_upon():
    assert [line for line in advice(request()) if "--recall-every 4" in line]
    assert not [line for line in advice(request(recall_every=4)) if "recall-every" in line]


PLAN = ("plan", "--model", "Qwen3-4B-4bit", "--max-kv", 512, "--context", CONTEXT, "--device")


def test_plan_shows_recall_and_says_it_in_json(run):
    output = run(*PLAN, "iPhone 15 Pro", "--recall", "--archive", "files", "--verbose")
    assert output.exit_code == 0, output.output
    assert "recall, s" in output.stdout
    assert "36 layers archive 47,232 bytes per token in 4 bits in files" in output.stdout
    result = run(*PLAN, "iPhone 15 Pro", "--recall", "--archive-bits", 8, "--json")
    [document] = check(json.loads(result.stdout), "plan")["models"]
    assert document["recall"]["archive_bits"] == 8
    assert document["devices"][0]["recall_seconds"] > 0
    output = json.loads(run(*PLAN, "iPhone 15 Pro", "--json").stdout)
    [plain] = check(output, "plan")["models"]
    assert plain["recall"] is None
    assert plain["devices"][0]["recall_seconds"] is None
    fast, with_recall = (
        result_json["devices"][0]["speed"] for result_json in (plain, document)
    )
    assert with_recall["sustained"] == pytest.approx(fast["sustained"], rel=0.01)


def test_recall_needs_a_cache_that_evicts(run):
    result = run("plan", "--model", "demo", "--recall")
    assert result.exit_code == ExitCode.USAGE
    assert "--recall is only for caches that evict" in result.stderr
