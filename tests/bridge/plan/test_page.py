from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from h2o_pack.plan.page import groups, holds, page
from h2o_pack.spec import CacheSpec
from tests.bridge.memory.described import model
from tests.bridge.plans import on_devices

VOID = {"meta", "br", "link", "img"}


class Page(HTMLParser):
    """Checks that tags match, and collects styles, addresses and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.attributes.append((tag, {key: value or "" for key, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


@pytest.fixture(scope="module")
def plan():
    return on_devices(model('Qwen3 <4B> & "more"'), CacheSpec(max_kv=512))


@pytest.fixture(scope="module")
def report(plan):
    return plan.models[0]


@pytest.fixture(scope="module")
def text(plan) -> str:
    return page(plan)


def width(attributes: dict[str, str], name: str = "width") -> float:
    return float(re.search(rf"{name}:([\d.]+)%", attributes["style"])[1])


def test_it_needs_nothing_else_and_runs_nothing(text):
    made = Page(text)
    assert not {"script", "link", "img", "iframe"} & {tag for tag, _ in made.attributes}
    assert not any({"src", "href"} & set(attributes) for _, attributes in made.attributes)
    assert "http" not in text
    assert "url(" not in text
    assert "prefers-color-scheme: dark" in text


def test_names_are_text_and_not_markup(text):
    assert 'Qwen3 <4B> & "more"' in "".join(Page(text).words)


def test_each_bar_is_as_long_as_its_terms_and_to_one_scale(text, report):
    made = Page(text).attributes
    bars = [i for i, (_, attributes) in enumerate(made) if attributes.get("class") == "bar"]
    assert len(bars) == len(report.devices)
    plans = {plan.backend: plan for plan in report.plans}
    scales = set()
    for at, row in zip(bars, report.devices, strict=True):
        parts = []
        for tag, attributes in made[at + 1 :]:
            if tag != "span":
                break
            parts.append(width(attributes))
        assert len(parts) == sum(term.bytes > 0 for term in plans[row.backend].terms)
        assert sum(parts) == pytest.approx(100, abs=0.01)
        scales.add(round(row.needed / width(made[at][1]) / 1e6))
    assert len(scales) <= 2


def test_limits_are_marked_where_they_are(text, report):
    made = Page(text).attributes
    marks = [
        attributes for _, attributes in made if "mark" in attributes.get("class", "").split()
    ]
    limits = [
        verdict.limit
        for row in report.devices
        for verdict in (row.default, row.entitled)
        if verdict.limit
    ]
    assert len(marks) == len(limits)
    ratios = {
        round(limit / width(mark, "left") / 1e6)
        for limit, mark in zip(limits, marks, strict=True)
    }
    assert len(ratios) <= 3


def test_devices_of_a_kind_have_one_scale_that_their_largest_limit_nearly_fills(report):
    made = groups(report)
    assert sum(len(each.devices) for each in made) == len(report.devices)
    for group in made:
        limits = [each.entitled.limit or 0 for each in group.devices]
        assert 0.9 < max(limits) / group.scale < 1


def test_every_column_of_every_table_has_a_name(text):
    heads = re.findall(r"<th[^>]*>(.*?)</th>", text)
    assert heads
    assert all(heads)


def test_where_nothing_fits_no_number_is_given():
    large = model("large", weights=9_000_000_000)
    made = on_devices(large, CacheSpec(max_kv=512), "iPhone 12 mini")
    assert holds(made.models[0].devices[0], recalls=False)[-3:-1] == ["none", "none"]
    assert ">0<" not in page(made)


def test_a_page_is_printed_in_dark_ink_and_uncut(text):
    printed = text[text.index("@media print") :]
    assert "color-scheme: light" in printed
    assert ".scroll { overflow: visible; }" in printed
