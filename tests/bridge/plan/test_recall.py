"""What recall costs in a plan: bytes of archives, what tokens read, what else would fit."""

import json

import pytest

from h2o_pack.devices.catalogue import catalogue
from h2o_pack.errors import ExitCode, UserError
from h2o_pack.memory import terms
from h2o_pack.memory.cache_bytes import LayerArchive
from h2o_pack.model import Layer
from h2o_pack.plan.advice import advice
from h2o_pack.plan.device_fit import remedies
from h2o_pack.plan.speed import estimate, recall_plan
from h2o_pack.plan.workload import workload_of
from h2o_pack.spec import CacheSpec
from h2o_py.budgets import Budgets
from h2o_py.policy_fields import LARGEST
from tests.bridge.memory import described
from tests.bridge.schemas import check
from tests.processes import ROOT

CONTEXT = 16384
QWEN3_4B = described.model()
QWEN3_LAYER = QWEN3_4B.config.layers[0]
ARCHIVED = 36 * 2304  # bytes of an archived token in 8 bits, in all layers
NEWEST = 256 * 8 * 2 * 256  # bytes of a layer's tokens that are not packed yet


def request(context=CONTEXT, budgets=None, model=QWEN3_4B, max_kv=512, **options):
    settings = {"max_kv": max_kv, "context": context, "budgets": budgets}
    if options.get("recall", True):
        settings["archive"] = "memory"
    return workload_of(model, CacheSpec(**settings | options))


def test_an_archived_token_of_qwen3_4b_takes_what_the_formula_says():
    """A key of 128: 64 bytes of words and 4 groups of 2 + 2; keys and values, 8 heads.

    The sketch of a key: 32 bytes of words and 2 groups of 2 + 2.
    """
    for bits, vector in ((4, 64 + 16), (8, 128 + 16), (16, 256)):
        archive = LayerArchive(QWEN3_LAYER, bits, 2)
        assert archive.token_bytes == 8 * 2 * vector
        assert archive.sketch_token_bytes == 8 * (32 + 8)
    plan = recall_plan(request())
    assert plan.bytes_per_token == ARCHIVED
    assert plan.archive_bytes == CONTEXT * ARCHIVED + 36 * NEWEST
    assert plan.sketch_bytes_per_token == 36 * 8 * 40
    assert plan.sketch_bytes == CONTEXT * plan.sketch_bytes_per_token


def test_a_key_that_no_group_divides_is_sketched_as_it_comes():
    wide, narrow = (Layer("full", 1, dim, 64) for dim in (96, 80))
    assert LayerArchive(wide, 4, 2).sketch_token_bytes == 24 + 3 * 4
    assert LayerArchive(narrow, 16, 2).sketch_token_bytes == 160


@pytest.mark.parametrize(
    ("reach", "read"), [(None, 64), (0, 0), (1000, 1000), (LARGEST, CONTEXT)]
)
def test_a_generated_token_reads_the_best_of_the_archive_and_a_chunk_all(reach, read):
    plan = recall_plan(request(recall_reach=reach))
    assert plan.reach == (64 if reach is None else reach)
    assert plan.token_read_bytes == ARCHIVED * read
    assert plan.prompt_read_bytes == ARCHIVED * CONTEXT


@pytest.mark.parametrize(("ask", "asking"), [(None, 512), (32, 32)])
def test_a_chunk_multiplies_queries_with_all_keys_and_values(ask, asking):
    """The queries of 32 heads read keys and values; of 4.02 billion weights."""
    plan = recall_plan(request(recall_ask=ask))
    multiply_adds = 36 * asking * 32 * 2 * 128 * CONTEXT
    assert plan.prompt_tokens == pytest.approx(multiply_adds / 4.02e9, rel=0.01)


def test_what_all_of_a_prompt_costs_that_reads_the_archive_is_what_the_page_says():
    few, all_of_it = (request(recall_ask=ask, archive="files") for ask in (32, None))
    tokens = recall_plan(all_of_it).prompt_tokens
    page = " ".join((ROOT / "docs/answers.md").read_text("utf-8").split())
    assert f"each chunk of 512 tokens costs as much as {tokens:.0f} more" in page
    assert all_of_it.plan("iphone").total == pytest.approx(few.plan("iphone").total, rel=0.01)


def test_reading_the_archive_slows_generated_tokens():
    (phone,) = catalogue(None).find("iPhone 15 Pro")
    plain, without, few, many, in_files = (
        1 / estimate(request(**options), phone).tokens_per_second[1]
        for options in (
            {"recall": False}, {"recall_reach": 0}, {}, {"recall_reach": 2000},
            {"recall_reach": 2000, "archive": "files"},
        )
    )  # fmt: skip
    assert plain == without < few < many < in_files
    sketch = 11_520 * CONTEXT / (0.8 * phone.bandwidth)
    memory, files = (2000 * ARCHIVED / speed for speed in (0.8 * phone.bandwidth, 1.45e9))
    assert many - plain == pytest.approx(sketch + memory, rel=0.05)
    assert in_files - plain == pytest.approx(sketch + files, rel=0.05)


def test_without_recall_there_are_no_terms_of_it():
    plain = request(recall=False)
    assert recall_plan(plain) is None
    names = [term.name for term in plain.plan("iphone").terms]
    assert terms.ARCHIVE not in names
    assert terms.RECALL not in names
    costs, plan = recall_plan(request()), request().plan("iphone")
    assert plan.of(terms.ARCHIVE) == costs.archive_bytes + costs.sketch_bytes
    assert request().plan("mac").of(terms.RECALL) > 0
    assert plan.caches == plain.plan("iphone").caches


def test_an_archive_in_files_leaves_sketch_newest_tokens_and_what_waits_in_memory():
    own = request(archive="files", context=CONTEXT + 100)
    plan = recall_plan(own)
    assert plan.archive_bytes == CONTEXT * ARCHIVED
    assert plan.sketch_bytes == (CONTEXT + 256) * plan.sketch_bytes_per_token
    assert own.plan("iphone").of(terms.ARCHIVE) == (
        plan.sketch_bytes + 36 * NEWEST + (64 << 20)
    )


def test_a_limit_keeps_whole_newest_segments():
    archive = LayerArchive(QWEN3_LAYER, 4, 2, limit=1_000_000)
    assert archive.tokens(500) == 500
    count = archive.tokens(10_100)
    assert count % 256 == 10_100 % 256
    assert count * archive.token_bytes <= archive.limit < (count + 256) * archive.token_bytes


def test_a_plan_says_what_is_beyond_the_limit_of_its_archives():
    """16 segments of 256 tokens with 2,304 bytes each are within 10,000,000 bytes."""
    assert recall_plan(request()).archive_tokens == CONTEXT
    own = request(archive_limit=10_000_000)
    plan = recall_plan(own)
    assert plan.archive_tokens == 16 * 256
    assert plan.archive_bytes == 36 * (16 * 256 * 2304 + NEWEST)
    assert plan.sketch_bytes == 16 * 256 * plan.sketch_bytes_per_token
    assert own.plan("iphone").of(terms.ARCHIVE) == plan.archive_bytes + plan.sketch_bytes
    (line,) = [line for line in advice(own) if "--archive-limit 10000000" in line]
    assert "4,096 of 16,384 tokens" in line
    assert not [line for line in advice(request()) if "--archive-limit" in line]


def test_a_chunk_reads_two_tiles_at_a_time_however_long_the_archive_is():
    alone = described.model(layers=(QWEN3_LAYER,))
    short, long = (
        request(context=tokens, model=alone, prefill_step=32).plan("cpu").prefill_peak
        for tokens in (4096, 40960)
    )
    copies_and_hidden = (40960 - 4096) * 8 * (40 + 8)
    assert 0 < long - short <= copies_and_hidden
    assert 16 << 20 < long < 64 << 20


def test_a_generated_token_needs_memory_for_what_it_reads():
    """On a GPU also for the logits of all sketched keys."""
    alone = described.model(layers=(QWEN3_LAYER,))

    def peak(reach, backend):
        return request(model=alone, recall_reach=reach).plan(backend).decode_peak

    every_row = CONTEXT * 8 * 2 * 128 * 4
    assert peak(LARGEST, "cpu") >= peak(0, "cpu") + every_row
    assert peak(LARGEST, "mac") >= peak(64, "mac") + every_row
    assert peak(64, "mac") >= peak(0, "mac") + CONTEXT * 32 * 4


@pytest.mark.parametrize(
    ("options", "flags"),
    [
        ({"archive_bits": 8}, "--archive-bits has"),
        ({"archive_limit": 0}, "--archive-limit has"),
        ({"recall_reach": 9, "archive": "files"}, "--recall-reach and --archive have"),
    ],
)
def test_settings_of_recall_need_recall(options, flags):
    with pytest.raises(UserError, match=f"{flags} no effect without recall") as error:
        request(recall=False, **options)
    assert error.value.code == ExitCode.USAGE


def test_heads_that_no_group_divides_are_archived_as_they_come_or_not_at_all():
    narrow = described.model(layers=(described.Layer("full", 8, 80, 80),) * 2)
    with pytest.raises(UserError, match=r"--archive-bits 4 quantizes in groups of 32 .* of 80"):
        request(model=narrow, archive_bits=4)
    assert recall_plan(request(model=narrow)).bytes_per_token == 2 * 8 * 320


def test_budgets_name_the_layers_that_recall():
    budgets = Budgets((None,) * 36, recall=(3, 20))
    plan = recall_plan(request(budgets=budgets))
    assert plan.layers == 2
    assert plan.bytes_per_token == 2 * 2304


def test_what_does_not_fit_may_fit_with_files_or_without_recall():
    own = request(context=40960)
    limit = request(context=40960, archive="files").plan("iphone").total
    assert list(remedies(own, limit, "iphone"))[:2] == ["--archive files", "--no-recall"]
    in_files = request(context=40960, archive="files")
    assert "--archive files" not in list(remedies(in_files, limit - 50_000_000, "iphone"))


def test_the_most_rows_are_planned_with_their_archive():
    limit = 5_000_000_000
    most = [request(recall=on).largest_max_kv(limit, "iphone") for on in (False, True)]
    assert 0 < most[1] < most[0]


def test_an_archive_in_memory_is_compared_with_a_cache_that_keeps_everything():
    (line,) = advice(request())
    assert line == (
        "an archive in memory takes 1,396.7 MB, and a cache that keeps all tokens 1,283.5 MB: "
        "give --archive files, or --kv 8 alone"
    )
    assert not advice(request(archive="files"))


def test_recall_takes_the_place_of_the_advice_to_keep_more_rows():
    assert not [line for line in advice(request()) if "under an eighth" in line]
    plain = [line for line in advice(request(recall=False)) if "under an eighth" in line]
    assert plain[0].endswith("or leave out --no-recall")
    assert not advice(request(context=512))


PLAN = ("plan", "--model", "Qwen3-4B-4bit", "--max-kv", 512, "--context", CONTEXT, "--device")


def test_plan_shows_recall_and_says_it_in_json(run):
    output = run(*PLAN, "iPhone 15 Pro", "--verbose")
    assert output.exit_code == 0, output.output
    assert ", files 1,359" in output.stdout
    assert "36 layers archive 82,944 bytes per token in 8 bits in files" in output.stdout
    assert "reads the sketch and 5.3 MB of the archives" in output.stdout
    result = run(*PLAN, "iPhone 15 Pro", "--archive-bits", 4, "--json")
    [document] = check(json.loads(result.stdout), "plan")["models"]
    assert document["recall"]["archive_bits"] == 4
    output = json.loads(run(*PLAN, "iPhone 15 Pro", "--no-recall", "--json").stdout)
    [plain] = check(output, "plan")["models"]
    assert plain["recall"] is None
    fast, with_recall = (
        result_json["devices"][0]["speed"] for result_json in (plain, document)
    )
    assert with_recall["bytes_per_token"] > fast["bytes_per_token"]
