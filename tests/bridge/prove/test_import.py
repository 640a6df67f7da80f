from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from h2o_pack.devices import proven
from h2o_pack.devices.catalogue import catalogue
from h2o_pack.errors import ExitCode, UserError
from h2o_pack.memory.terms import MODELLED
from h2o_pack.plan.speed import calibration
from h2o_pack.prove import keep
from h2o_pack.prove.expected import plan_of
from h2o_pack.prove.facts import facts_of, to_toml
from h2o_pack.prove.keep import FOLDER, PAGE, import_reports
from h2o_pack.prove.page import NONE, page
from tests.bridge import schemas
from tests.bridge.prove.made_up import (
    PHONE,
    SETTING,
    changed,
    checks,
    expected,
    report,
    written,
)

ROOT = Path(__file__).parents[3]
MODEL = "Qwen3-1.7B-4bit"


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A checkout without reports, whose facts are its own."""
    made = tmp_path / "checkout"
    made.mkdir()
    monkeypatch.setattr(proven, "path", lambda: made / "proven.toml")
    monkeypatch.setattr(keep, "checkout", lambda: made)
    return made


def later(**changes):
    """The same phone a day later."""
    times = {"started": "2026-11-23T10:00:00Z", "finished": "2026-11-23T10:11:00Z"}
    return report(**{**times, **changes})


def files(root):
    return {
        path.relative_to(root).as_posix(): path.read_text("utf-8")
        for path in root.rglob("*")
        if path.is_file()
    }


def test_a_report_becomes_a_file_a_page_and_facts(root, tmp_path):
    done = import_reports([written(report(), tmp_path)], root)
    schemas.check(done, "prove")
    [name] = done.reports
    assert name.startswith(f"{FOLDER}/iPhone17-1-20261122T101100Z-")
    assert set(done.changed) == {name, f"{FOLDER}/{PAGE}", "proven.toml"}
    assert done.facts == 1
    text = (root / FOLDER / PAGE).read_text("utf-8")
    assert "| iPhone17,1 | iOS 26.1 | 2026-11-22 | 6 | 0 | 1 |" in text
    assert "| memory/total | <= " in text
    assert "- pressure/warning: memory was never short" in text
    device = catalogue().find("iPhone17,1")[0]
    assert device.limit == 3_400_000_000
    [number] = [each for each in device.numbers if each.what == "default"]
    assert (number.kind, number.source) == ("measured", name)


def test_the_same_report_again_changes_nothing(root, tmp_path):
    path = written(report(), tmp_path)
    import_reports([path], root)
    before = files(root)
    assert import_reports([path, path], root).changed == ()
    assert files(root) == before


def test_of_one_device_the_newest_counts_and_all_are_listed(root, tmp_path):
    new = later(checks=changed("limits/default", measured=3.2e9))
    paths = [written(new, tmp_path, "new.json"), written(report(), tmp_path, "old.json")]
    done = import_reports(paths, root)
    assert len(done.reports) == 2
    assert catalogue().find("iPhone17,1")[0].limit == 3_200_000_000
    text = (root / FOLDER / PAGE).read_text("utf-8")
    assert text.index("2026-11-23") < text.index("2026-11-22")
    assert text.count("## iPhone17,1") == 1


def test_one_forged_report_keeps_all_out(root, tmp_path):
    forged = written(report(checks=changed("speed/lasting", measured=0.9)), tmp_path, "f.json")
    good = written(report(), tmp_path)
    before = files(root)
    with pytest.raises(UserError, match=r"speed/lasting.*contradicts") as caught:
        import_reports([good, forged], root)
    assert caught.value.code is ExitCode.DIFFERENT
    assert files(root) == before


def peaked(part):
    """A report whose peak is so much of what is modelled, beside what is exact."""
    plan = plan_of(SETTING)
    exact = plan.of("weights", "keys and values", "ledger")
    peak = round(exact + part * (plan.mlx - exact))
    own = {"weights": plan.of("weights"), "ledger": plan.of("ledger"), "MLX": peak}
    found = (expected(f"memory/{name}", size, "bytes", 4) for name, size in own.items())
    before, after = checks()[:6], checks()[6:]
    return report(checks=(*before, *found, *after))


@pytest.mark.parametrize(("part", "margin"), [(1.08, 0.08), (0.9, 0.0)])
def test_a_peak_becomes_the_margin_of_plans_for_that_device(root, tmp_path, run, part, margin):
    ask = ("plan", "--model", "demo", "--max-kv", 64, "--device", "iPhone17,1", "--json")
    before = json.loads(run(*ask).stdout)["devices"][0]
    done = import_reports([written(peaked(part), tmp_path)], root)
    assert done.no_margin == ()
    document = schemas.check(json.loads(run(*ask).stdout), "plan")
    [after] = document["devices"]
    modelled = after["margin"]["planned"]
    assert after["margin"]["margin"] == pytest.approx(margin, abs=1e-4)
    assert after["margin"]["measured"] is True
    assert after["margin"]["source"] == done.reports[0]
    # the plan that is asked for has other terms than the setting of the report
    [plan] = document["plans"]
    of_plan = sum(t["bytes"] for t in plan["terms"] if t["name"] in MODELLED)
    said = sum(t["bytes"] for t in plan["terms"] if t["name"] == "margin")
    assert after["needed"] == pytest.approx(
        before["needed"] - said + margin * of_plan, abs=modelled * 1e-4
    )
    assert "is planned with the margin that it needed" in run(*ask[:-1]).stdout


def test_a_report_without_terms_says_why_it_gives_no_margin(root, tmp_path, run):
    done = import_reports([written(report(), tmp_path)], root)
    [said] = done.no_margin
    assert said.endswith("memory/weights was not held against the plan")
    assert (
        "no margin follows from"
        in run("prove", "--import").stdout
        + run("prove", "--import", written(report(), tmp_path)).stdout
    )


def test_the_margin_of_a_report_is_that_of_plan_measured(root, tmp_path, run):
    made = peaked(1.2)
    import_reports([written(made, tmp_path)], root)
    [fact] = proven.proven().margin
    seen = {"format": 1, "device": "iPhone17,1"}
    peak = made.by_id()["memory/MLX"].measured
    seen["terms"] = [{"name": "MLX", "bytes": int(peak)}]
    path = tmp_path / "seen.json"
    path.write_text(json.dumps(seen))
    ask = ("--max-kv", 64, "--context", 512, "--prefill-step", 128)
    told = json.loads(run("plan", "--model", "demo", *ask, "--measured", path, "--json").stdout)
    assert told["measured"]["margin"] == pytest.approx(fact.margin, abs=2e-4)


def test_a_speed_with_a_large_model_stands_beside_the_published_ones(root, tmp_path):
    setting = dataclasses.replace(SETTING, model=MODEL)
    made = report(setting=setting, commit="ab" * 20)  # by other code: planned otherwise
    import_reports([written(made, tmp_path)], root)
    [own] = [each for each in calibration(catalogue()) if each.kind == "measured"]
    assert (own.model, own.identifier, own.tokens_per_second) == (MODEL, "iPhone17,1", 400.0)


def test_a_device_that_no_plan_knows_has_a_page_and_no_facts(root, tmp_path):
    machine = dataclasses.replace(PHONE, identifier="iPhone99,1")
    done = import_reports([written(report(machine=machine), tmp_path)], root)
    assert done.facts == 0
    assert not proven.path().exists()
    assert "iPhone99,1" in (root / FOLDER / PAGE).read_text("utf-8")


def test_an_installed_h2o_pack_keeps_no_reports(run, tmp_path, copied_assets):
    done = run("prove", "--import", written(report(), tmp_path))
    assert done.exit_code == ExitCode.OUTPUT
    assert "installed without it" in done.stderr
    assert str(copied_assets) in done.stderr


def test_a_checkout_is_one():
    assert keep.checkout() == ROOT


def test_the_command_says_what_it_kept(root, run, tmp_path):
    path = written(report(), tmp_path)
    done = run("prove", "--import", path)
    assert done.exit_code == 0, done.output
    assert "1 report is kept; 1 number for plans" in done.output
    document = json.loads(run("prove", "--import", "--json", path).stdout)
    assert schemas.check(document, "prove")["changed"] == []


def test_the_committed_page_and_facts_are_those_of_the_committed_reports():
    kept = keep.read_kept(ROOT)
    assert (ROOT / FOLDER / PAGE).read_text("utf-8") == page(kept)
    facts = facts_of(keep.sourced(kept))
    committed = ROOT / "bridge/h2o_pack/facts" / proven.NAME
    if any(vars(facts).values()):
        assert committed.read_text("utf-8") == to_toml(facts)
    else:
        assert not committed.exists()
    if not kept:
        assert NONE in page(kept)
