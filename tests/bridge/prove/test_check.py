from __future__ import annotations

import dataclasses
import json

import pytest

from h2o_pack import results
from h2o_pack.errors import ExitCode, UserError
from h2o_pack.prove import checksum, own
from h2o_pack.prove.ids import DECODE_COLD
from h2o_pack.prove.read import NO_PLAN, OTHER_CODE, check_report, read_report
from h2o_pack.prove.report import Digests
from tests.bridge import schemas
from tests.bridge.prove.made_up import (
    PHONE,
    SETTING,
    changed,
    checks,
    report,
    rewritten,
    written,
)


def test_a_consistent_report_is_as_its_schema_says_and_passes(tmp_path):
    schemas.check(report(), "prove")
    path = written(report(), tmp_path)
    assert read_report(path) == report()
    checked = check_report(path)
    assert (checked.machine, checked.not_recomputed) == ("iPhone17,1", ())


KV = "memory/keys and values"
OUTPUTS = "level 2/float32/float32/outputs"
SMALL = dataclasses.replace(PHONE, memory_bytes=10**8)

# A forged report, and the field that gives it away; counts and checksum are made to fit.
FORGED = {
    "a difference called as expected": (
        {"checks": changed(OUTPUTS, measured=0.5)},
        f'checks[1] "{OUTPUTS}".verdict',
    ),
    "an allowance made larger": (
        {"checks": changed(OUTPUTS, expected=0.5)},
        f'checks[1] "{OUTPUTS}".expected',
    ),
    "an expectation dropped": (
        {"checks": changed(OUTPUTS, rule="none", expected=None, verdict="measured")},
        f'checks[1] "{OUTPUTS}".rule',
    ),
    "bytes that the plan does not have": (
        {"checks": changed(KV, expected=5.0, measured=5.0)},
        f'checks[4] "{KV}".expected',
    ),
    "a ratio of other speeds": (
        {"checks": changed("speed/lasting", measured=0.99)},
        'checks[8] "speed/lasting".measured',
    ),
    "a part left out": (
        {"checks": tuple(each for each in checks() if not each.id.startswith("thermal"))},
        "checks",
    ),
    "a case without its differences": (
        {"checks": tuple(each for each in checks() if "k8v4/float32/diff" not in each.id)},
        "checks",
    ),
    "a check twice": ({"checks": (*checks(), checks()[-1])}, 'checks[12] "limits/default".id'),
    "an end before the start": ({"finished": "2026-11-22T09:00:00Z"}, "finished"),
    "a time to come": ({"finished": "2126-11-22T10:11:00Z"}, "finished"),
    "a day that is not": ({"started": "2026-02-30T10:00:00Z"}, "started"),
    "checks out of order": (
        {"checks": changed(DECODE_COLD, at=0.5)},
        f'checks[6] "{DECODE_COLD}".at',
    ),
    "a check after the end": (
        {"checks": changed("limits/default", at=9000.0)},
        'checks[11] "limits/default".at',
    ),
    "another chip": (
        {"machine": dataclasses.replace(PHONE, chip="A14")},
        "machine.chip",
    ),
    "more memory than the device has": (
        {"machine": dataclasses.replace(PHONE, memory_bytes=2**40)},
        "machine.memory_bytes",
    ),
    "more used than there is": ({"machine": SMALL}, 'checks[5] "memory/total".measured'),
    "a phone that runs macOS": (
        {"machine": dataclasses.replace(PHONE, system="macOS")},
        "machine.identifier",
    ),
    "a GPU on a CPU": (
        {"machine": dataclasses.replace(PHONE, gpu="")},
        "machine.gpu",
    ),
    "a version that does not belong": (
        {"versions": {"h2o-pack": "0.1.0", "mlx-swift": "9.9"}},
        "versions.mlx-swift",
    ),
    "another model": ({"digests": Digests("cd" * 32, "", "")}, "digests.model"),
    "other kernels": ({"digests": Digests("", "", "cd" * 32)}, "digests.kernels"),
    "no reason for what was not run": (
        {"checks": changed("pressure/warning", why="")},
        'checks[10] "pressure/warning".why',
    ),
    "a tolerance that allows all": (
        {"checks": changed("thermal/state", rule="within", expected=1.0, tolerance=1.0)},
        'checks[9] "thermal/state".tolerance',
    ),
}


@pytest.mark.parametrize(("changes", "field"), FORGED.values(), ids=FORGED)
def test_a_forged_report_is_refused_by_the_field(tmp_path, changes, field):
    path = written(report(**changes), tmp_path)
    with pytest.raises(UserError) as caught:
        read_report(path)
    said = [each.what for each in caught.value.errors]
    assert any(each.startswith(f"{field} contradicts the report: ") for each in said), said
    assert caught.value.code is ExitCode.DIFFERENT


def test_a_changed_value_is_seen_by_the_checksum(tmp_path):
    path = rewritten(report(), tmp_path, started="2026-11-22T10:00:01Z")
    with pytest.raises(UserError, match=r"^checksum contradicts the report"):
        read_report(path)


def test_counts_are_of_the_verdicts(tmp_path):
    counts = dataclasses.replace(report().counts, differs=3)
    made = dataclasses.replace(report(), counts=counts)
    path = written(made, tmp_path)
    with pytest.raises(UserError, match=r"counts\.differs contradicts the report"):
        read_report(path)


def test_levels_1_and_2_have_the_same_cases(tmp_path, monkeypatch):
    monkeypatch.setattr("h2o_pack.prove.check.PARTS", {"app": ("level 1", "level 2")})
    two = [each for each in checks() if each.id.startswith("level 2")]
    one = [
        dataclasses.replace(each, id=each.id.replace("level 2", "level 1")) for each in two[:2]
    ]
    path = written(report(checks=tuple(sorted([*one, *two], key=lambda c: c.at))), tmp_path)
    with pytest.raises(UserError, match='level 1 lacks the case "kv k8v4/float32"'):
        read_report(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON"),
        ("[]", "is not a report of `h2o-pack prove`"),
        (results.to_json(report()).replace('"app"', '"me"'), "Invalid enum value"),
    ],
)
def test_another_file_is_no_report(tmp_path, text, said):
    path = tmp_path / "proof.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=said) as caught:
        read_report(path)
    assert caught.value.code is ExitCode.USAGE


def test_a_report_by_other_code_keeps_its_own_expectations(tmp_path):
    made = report(commit="ab" * 20, checks=changed(KV, expected=5.0, measured=5.0))
    assert check_report(written(made, tmp_path)).not_recomputed == (OTHER_CODE,)


def test_a_model_that_is_not_here_is_said(tmp_path, monkeypatch):
    setting = dataclasses.replace(SETTING, model=str(tmp_path / "gone"))
    assert check_report(written(report(setting=setting), tmp_path)).not_recomputed == (NO_PLAN,)


def test_the_checksum_is_the_same_however_numbers_are_written(tmp_path):
    text = results.to_json(report())
    assert '"measured": 400.0' in text
    path = tmp_path / "proof.json"
    path.write_text(text.replace("400.0", "4e2").replace('"at": 1.0', '"at": 1'), "utf-8")
    assert read_report(path) == report()


def test_the_checksum_is_of_a_line_for_each_value():
    document = {"b": [1, -0.0, {"x": None}], "a": "so", "c": {"d": True, "e": [], "f": False}}
    assert checksum.text_of(document) == (
        "a=sso\nb.0=n3ff0000000000000\nb.1=n0000000000000000\nb.2.x=null\nc.d=true\nc.f=false\n"
    )


def test_the_command_says_what_holds_and_refuses_what_does_not(run, tmp_path):
    done = run("prove", "--check", written(report(), tmp_path))
    assert done.exit_code == 0, done.output
    assert "iPhone17,1; 6 as expected, 0 differ, 5 measured, 1 not run" in done.output
    forged = written(report(commit="", **FORGED["another model"][0]), tmp_path)
    done = run("prove", "--json", "--check", forged)
    assert done.exit_code == ExitCode.DIFFERENT
    [error] = schemas.check(json.loads(done.stdout), "error")["errors"]
    assert error["what"].startswith("digests.model contradicts the report")


def test_the_demo_models_digest_is_that_of_its_package(demo_package):
    manifest = json.loads((demo_package / "Model/manifest.json").read_text("utf-8"))
    assert own.digest_of_model("demo") == manifest["digest"]
