"""What `plan` shows people: a verdict, what takes how much, and the devices that are alike."""

from __future__ import annotations

import pytest

from h2o_pack.plan.device_fit import PlanResult
from h2o_pack.plan.plan_tables import groups, sums, together, write_page
from h2o_pack.spec import CacheSpec
from tests.bridge.memory.described import model
from tests.bridge.plans import on_devices

PLAN = ("plan", "--model", "Qwen3-4B-4bit", "--max-kv", 512)
LINES, COLUMNS = 40, 80


@pytest.fixture(scope="module")
def plan() -> PlanResult:
    return on_devices(model('Qwen3 <4B> & "more"'), CacheSpec(max_kv=512))


@pytest.fixture
def screen(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    return lambda *options: run(*PLAN, *options).stdout.splitlines()


def test_it_fits_one_screen_and_begins_with_the_verdict(screen):
    lines = screen()
    assert lines[0] == "Qwen3-4B-4bit fits on 20 of 27 devices; smallest: iPad (A16)"
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= COLUMNS


def test_several_models_on_all_devices_fit_a_screen_that_says_which_is_loaded(screen):
    models = ("Llama-3.2-1B-Instruct-4bit", "Qwen3-8B-4bit")
    lines = screen(*(word for name in models for word in ("--model", name)), "--all")
    verdict = " ".join(" ".join(lines[:2]).split())
    assert verdict.endswith(" of 95 devices; smallest: iPad Air (4th generation)")
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= COLUMNS
    for name in ("Qwen3-4B-4bit", *models):
        assert [line for line in lines if line.endswith(tuple("0123456789")) and name in line]


def test_of_one_device_the_verdict_names_it(screen):
    assert screen("--device", "iPhone 15 Pro")[0] == "Qwen3-4B-4bit fits on iPhone 15 Pro"
    assert screen("--device", "iPhone 12")[0] == "Qwen3-4B-4bit does not fit on iPhone 12"


def test_the_rest_is_shown_with_verbose(screen):
    assert not [line for line in screen() if "page rounding" in line]
    lines = screen("--verbose")
    assert [line for line in lines if "page rounding" in line]
    assert [line for line in lines if "Stack Overflow" in line]
    assert max(map(len, lines)) <= COLUMNS


def test_the_sums_are_all_of_the_plan(plan):
    for each in plan.models[0].plans:
        *parts, total = sums(each).values()
        assert sum(parts) == total == each.total


def test_devices_of_a_group_have_one_memory_limit_and_need(plan):
    found, devices = groups(plan), plan.models[0].devices
    assert sorted(place for group in found for place in group.places) == [*range(len(devices))]
    kinds = [
        {(devices[i].ram, devices[i].needed, devices[i].entitled.limit) for i in group.places}
        for group in found
    ]
    assert all(len(kind) == 1 for kind in kinds)
    assert len({kind.pop() for kind in kinds}) == len(found) < len(devices)


def test_names_leave_out_what_they_share_and_what_does_not_fit_the_line():
    assert together(["iPhone 15", "iPhone 16", "iPad (A16)"]) == "iPhone 15, 16, iPad (A16)"
    assert together(["iPad Pro 11-inch (M1), 1-2 TB"] * 2) == "iPad Pro 11-inch (M1), 1-2 TB"
    assert together([f"iPhone {number}" for number in range(99)]).endswith(" more")


def full_cache(context: int, *devices: str):
    cache = CacheSpec(max_kv=512, context=context)
    return on_devices(model(), cache, *devices).models[0].full_cache


def test_a_cache_that_keeps_every_token_is_named_where_it_fits(screen):
    phone, room = "iPhone 16 Pro", "iPhone 12 Pro"
    assert full_cache(8192, phone).kv == "dense"
    assert [full_cache(tokens, room).kv for tokens in (5120, 6144)] == ["8", "rotated4"]
    assert full_cache(40960, room) is None
    assert full_cache(512, phone) is None
    held = ((phone, 8192, "dense"), (room, 5120, "8"), (room, 6144, "rotated4"))
    for name, tokens, kv in held:
        said = screen("--context", tokens, "--device", name)[1]
        all_tokens = f"all {tokens:,} tokens fit and nothing is forgotten"
        assert said == f"{all_tokens}: --max-kv {tokens} --kv {kv}"


def test_of_the_models_own_cache_too_it_is_named_where_that_does_not_fit(run):
    room = ("--device", "iPhone 12 Pro", "--model", "Qwen3-4B-4bit")
    assert "nothing is forgotten" not in run("plan", *room, "--context", 4096).stdout
    said = run("plan", *room, "--context", 5120).stdout.splitlines()[1]
    assert said == "all 5,120 tokens fit and nothing is forgotten: --max-kv 5120 --kv 8"


def test_where_it_fits_on_some_devices_these_are_named():
    found = full_cache(4096, "iPhone 12", "iPhone 12 Pro", "iPhone 16 Pro")
    assert found.devices == ("iPhone13,3", "iPhone17,1")


def test_a_page_has_all_of_it_and_needs_nothing_else(plan, tmp_path):
    write_page(plan, tmp_path / "pages" / "plan.html")
    text = (tmp_path / "pages" / "plan.html").read_text("utf-8")
    assert "Qwen3 &lt;4B&gt; &amp; &quot;more&quot;" in text
    assert "page rounding" in text
    assert not [tag for tag in ("<script", "<link", "<img", "http", "url(") if tag in text]
