"""Names from elsewhere: they stay in their place and never become Swift of their own."""

import dataclasses
import json
import plistlib
import re
import sys
from itertools import product
from pathlib import Path, PurePosixPath
from types import SimpleNamespace

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from h2o_pack.errors import ExitCode, UserError
from h2o_pack.measure.text import Tokens
from h2o_pack.spec import CacheSpec, DeliverySpec, local_folder
from h2o_pack.verify.check import verify
from tests.bridge.openstep import read_openstep
from tests.bridge.plans import plan_of, rendered
from tests.bridge.test_naming import read_swift_literal
from tests.bridge.trees import names, resolve, write_model
from tests.messages import refused
from tests.nightly import nightly_except
from tests.processes import ran

NAMES = (
    "with space",
    "quote \" ' `",
    "back\\slash",
    "\\(interpolated)",
    '"); import Darwin; system("',
    "line\nbreak\r\u2028",
    "/* comment",
    "*/",
    "// comment",
    "#if os(iOS)",
    '"""',
    "{{ model_id }}{% raw %}",
    "class",
    "self",
    "Package",
    "Swift",
    "H2OKit",
    "Bundled",
    "0start",
    "🦙",
    "emoji 🦙 name",
    "名前",
    "e\u0301",
    "\u202eright to left",
    "../../escape",
    "/absolute",
    "..",
    ".hidden",
    "~root",
    "$(touch x)",
    "${HOME}",
    "%s%n",
    "-rf",
    "a" * 300,
    "",
    "\x1b[2J",
    "</string><key>",
)


def plan(model, name):
    """Make the plan of a model that somebody gave this name, as id and as package."""
    renamed = dataclasses.replace(model, id=name)
    return plan_of(renamed, CacheSpec(max_kv=512), name, delivery=DeliverySpec(asset_pack=True))


@pytest.mark.swift
@pytest.mark.parametrize("every", nightly_except([4], [1, 4]))
def test_no_name_breaks_the_generated_swift(model, tmp_path, every):
    texts = {
        text
        for name in NAMES[::every]
        for path, text in files(model, name).items()
        if path.endswith(".swift")
    }
    assert len(texts) >= 2 * len(NAMES[::every])
    sources = [tmp_path / f"{number}.swift" for number in range(len(texts))]
    for source, text in zip(sources, texts, strict=True):
        source.write_text(text, encoding="utf-8")
    (tmp_path / "sources").write_text("\n".join(f'"{source}"' for source in sources))
    # The driver would start a process for each file.
    command = ["swiftc", "-frontend", "-parse", "-swift-version", "6"]
    process = ran(*command, f"@{tmp_path / 'sources'}")
    assert (process.returncode, process.stderr) == (0, "")


FIXED = ("H2OKit/", "H2OTestModels/", "/Text/")
"""Folders whose files are the same for every name."""


def files(model, name):
    """Render the texts that depend on the name."""
    texts = rendered(plan(model, name))
    return {
        path: text
        for path, text in texts.items()
        if not any(folder in path for folder in FIXED) and isinstance(text, str)
    }


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from((*NAMES, "\udcff")) | st.text(max_size=40))  # \udcff: no UTF-8
def test_every_path_and_text_of_a_package_stays_plain_and_says_the_name(model, name):
    texts = files(model, name)
    for path, text in texts.items():
        pure = PurePosixPath(path)
        assert not pure.is_absolute()
        assert ".." not in pure.parts
        assert "Resources" not in pure.parts
        named = pure.parts[1] if path.startswith("App/") and ".xcodeproj/" in path else "App"
        assert not set(named) & set('/\\:*?"<>|'), "the project has the user's name"
        others = [part for part in pure.parts if part != named]
        assert all(re.fullmatch(r"[\w.+-]+", part, re.ASCII) for part in others), path
        assert all(character.isprintable() or character in "\n\t" for character in text), path
        if path.endswith((".swift", ".plist", ".entitlements", ".pbxproj", ".yml")):
            assert text.isascii(), path
    assert "\n\n\n" not in texts["README.md"]
    assert yaml.safe_load(texts[".github/workflows/h2o-pack.yml"])["jobs"]
    (project,) = (text for path, text in texts.items() if path.endswith(".pbxproj"))
    assert read_openstep(project)["objects"]
    assert plistlib.loads(texts["App/Info.plist"].encode())
    record = json.loads(texts["h2o-pack.lock.json"])
    assert record["models"][0]["model"] == name
    module = texts[f"Sources/{record['module']}Model/BundledModel.swift"]
    [literal] = re.findall(r"let id = (.*)", module)
    assert read_swift_literal(literal) == re.sub("[\ud800-\udfff]", "\ufffd", name)
    assert f'name: "{record["package"]}"' in texts["Package.swift"]
    assert f'"{record["module"]}Model"' in texts["Package.swift"]


FOLDERS = [*(n for n in NAMES[::2] if n and "/" not in n and len(n) < 255), "\udcff"]


@pytest.mark.parametrize("name", nightly_except([*FOLDERS[::5], "\udcff"], FOLDERS))
def test_a_model_folder_and_a_package_may_have_any_name(run, tmp_path, monkeypatch, name):
    if name in ("..", ".hidden"):
        name = name + "x"
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    folder = write_model(tmp_path / "models" / name)
    result = run("ios", "--model", folder, "--max-kv", 256, f"--name={name}")
    assert result.exit_code == 0, result.output
    (entry,) = names(tmp_path / "work")
    assert not verify(tmp_path / "work" / entry).differences
    assert names(tmp_path) == ["models", "work"]


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(NAMES) | st.text(max_size=30))
def test_a_model_name_that_leads_nowhere_is_an_error_with_a_remedy(hub, name):
    if local_folder(name) is not None:  # such as ".."
        return
    with pytest.raises(UserError) as error:
        resolve(name)
    assert error.value.remedy
    assert "\x1b" not in str(error.value)


# A program that a model brings: its chat template

SOME = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
LATE = {
    "in a second turn": "messages|length > 1",
    "with a system prompt": "messages[0].role == 'system'",
    "with tools": "tools",
    "with thoughts": "messages|selectattr('reasoning_content', 'defined')|list",
    "always": "true",
}
HARMS = {
    "divides by zero": "{{ 1 // 0 }}",
    "counts without an end": "{% for i in range(10000000000) %}x{% endfor %}",
    "takes all memory": "{{ 'x' * 100000000000 }}",
    "looks for what is not there": "{{ 'x'.index('y') }}",
    "calls itself": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "adds a number to a text": "{{ 'x' + 1 }}",
    "reads what it must not": "{{ ''.__class__.__mro__ }}",
    "writes half of a character": "{{ '%c' % 55296 }}",
    "includes a file": "{% include '/etc/passwd' %}",
}


FAILURES = list(product(HARMS, LATE))


@pytest.mark.parametrize(("harm", "when"), nightly_except(FAILURES[::6], FAILURES))
def test_a_template_that_fails_late_ends_in_a_documented_error(run, tmp_path, when, harm):
    source = f"{{% if {LATE[when]} %}}{HARMS[harm]}{{% endif %}}{SOME}"
    model = write_model(tmp_path / "model")
    (model / "chat_template.jinja").write_text(source)
    (tmp_path / "system.txt").write_text("Be brief.")
    options = ("--model", model, "--max-kv", 64, "--no-vendor", "--dry-run")
    for system in ((), ("--system", tmp_path / "system.txt")):
        result = run("ios", *options, *system)
        assert result.exit_code in (0, ExitCode.MODEL, ExitCode.USAGE), result.output
        assert "Traceback" not in result.output


HALF_OF_A_CHARACTER = {"tokenizer_config.json": '{"eos_token": "\\ud800"}',
    "generation_config.json": '{"x\\udfff": 1}',
    "special_tokens_map.json": '{"eos_token": "\\uD800x"}',
    "config.json": '{"model_type": "\\ud800"}'}  # fmt: skip


@pytest.mark.parametrize("name", HALF_OF_A_CHARACTER)
def test_half_of_a_character_in_a_models_json_is_refused(run, tmp_path, name):
    model = write_model(tmp_path / "model")
    (model / name).write_text(HALF_OF_A_CHARACTER[name])
    result = run("ios", "--model", model, "--max-kv", 64, "--no-vendor", "--dry-run")
    assert result.exit_code == ExitCode.MODEL
    assert len(result.stderr.splitlines()) == 1


MODULES = (
    *("h2o_py", "h2o_pack", "mlx", "mlx_lm", "numpy", "tokenizers", "transformers", "jinja2"),
    *("json", "resource", "msgspec", "sitecustomize", "usercustomize"),
)


@pytest.mark.parametrize("command", nightly_except(["ios"], ["ios", "doctor"]))
def test_no_module_of_the_current_folder_runs(tmp_path, command):
    """Somebody else's app or project, in which a command is run."""
    for name in MODULES:
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').write('x')")
    model = write_model(tmp_path / "model")
    script = Path(sys.executable).with_name("h2o-pack")
    options = ("--max-kv", "64", "--output", "Out", "--no-vendor", "--no-check-text")
    arguments = ("--model", str(model), *options) if command == "ios" else ()
    ran(script, command, *arguments, cwd=tmp_path)
    assert (tmp_path / "Out/Package.swift").exists() == (command == "ios")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "error", [ZeroDivisionError("x"), RecursionError("x"), ValueError("x")]
)
def test_a_template_that_fails_while_a_model_is_measured_is_a_users_error(error):
    def fail(*_arguments, **_options):
        raise error

    tokenizer = SimpleNamespace(
        chat_template="x", apply_chat_template=fail, encode=lambda *_, **__: [0, 1]
    )
    tokens = Tokens(tokenizer, ["a"])
    message = refused(tokens.chat, [{"role": "user", "content": "a"}], code=ExitCode.USAGE)
    assert 'the model\'s chat template refuses a conversation: "x"' in message
