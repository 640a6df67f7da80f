"""Packages of several models, of which an app takes the largest that fits."""

import json
from dataclasses import replace

import pytest

from h2o_pack.bundling import delivery
from h2o_pack.errors import ExitCode
from h2o_pack.facts import store_limits
from h2o_pack.files import lock
from h2o_pack.package.prepare import folders_of
from h2o_pack.verify.check import verify
from tests.bridge import schemas
from tests.bridge.trees import names, tree, write_model

BOTH = ("--model", "demo-4bit", "--model", "demo")


@pytest.fixture
def package(tmp_path):
    return tmp_path / "Two"


@pytest.fixture
def ios(run, package):
    """Make a package of two models, the smaller one given first."""

    def command(*options, models=BOTH, max_kv=64, code=ExitCode.OK):
        all_options = ("--max-kv", max_kv, "--output", package, "--json")
        result = run("ios", *models, *all_options, *options)
        assert result.exit_code == code, result.output
        return schemas.check(json.loads(result.stdout), "error" if code else "ios")

    return command


def test_each_model_has_a_folder_and_the_largest_is_the_first(ios, package):
    document = ios()
    assert [(model["model"], model["folder"]) for model in document["models"]] == [
        ("demo", "Model/demo"),
        ("demo-4bit", "Model/demo-4bit"),
    ]
    sizes = [file["size"] for model in document["models"] for file in model["files"]]
    assert document["size"]["models"] == sum(sizes)
    assert names(package / "Model") == ["demo", "demo-4bit"]
    source = (package / "Sources/DemoModel/BundledModel+All.swift").read_text("utf-8")
    assert source.index('id: "demo"') < source.index('id: "demo-4bit"')
    assert [model.folder for model in lock.read(package).models] == [
        "Model/demo",
        "Model/demo-4bit",
    ]


def test_verify_compares_every_folder(ios, package):
    ios()
    assert not verify(package).differences
    (package / "Model/demo-4bit/config.json").write_text("{}")
    (package / "Model/demo/model.safetensors").unlink()
    (package / "Model/mine.txt").write_text("mine")
    result = verify(package)
    assert [difference.path for difference in result.differences] == [
        "Model/demo/model.safetensors",
        "Model/demo-4bit/config.json",
    ]
    assert "Model/mine.txt was added" in map(str, result.users)


def test_a_package_of_one_model_becomes_one_of_two_and_back(ios, package):
    demo = ("--model", "demo")
    ios(models=demo)
    (package / "Model/mine.txt").write_text("mine")
    alone = tree(package)
    ios()
    assert names(package / "Model") == ["demo", "demo-4bit", "mine.txt"]
    ios(models=demo)
    assert tree(package) == alone


def test_the_system_prompt_is_read_by_each(ios, package, tmp_path):
    prompt = tmp_path / "system.txt"
    prompt.write_text("You are brief.")
    document = ios("--system", prompt)
    first, second = (model["system_prompt"] for model in document["models"])
    assert first["model"] != second["model"]
    for model in ("demo", "demo-4bit"):
        assert (package / "Model" / model / "system-prompt.tensors").is_file()
    assert not verify(package).differences


@pytest.mark.parametrize(
    "options",
    [
        *(("--asset-pack",), ("--adapter", "adapters"), ("--revision", "v1")),
        *(("--download", "https://example.com/m"), ("--budgets", "budgets.json")),
    ],
)
def test_options_of_one_model_are_refused(ios, package, tmp_path, monkeypatch, options):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "budgets.json").write_text('{"format": 1, "layers": [null]}')
    [error] = ios(*options, code=ExitCode.USAGE)["errors"]
    what = f"{options[0]} is only for a package with one model, but 2 are given"
    assert error["what"] == what
    assert not package.exists()


def test_a_model_that_is_given_twice_is_refused(ios):
    twice = ("--model", "demo", "--model", "demo")
    [error] = ios(models=twice, code=ExitCode.USAGE)["errors"]
    assert error["what"] == "demo is given twice"


def test_models_of_one_name_have_folders_of_their_own(ios, package, tmp_path):
    first, second = (write_model(tmp_path / where / "Tiny") for where in ("a", "b"))
    ios(models=("--model", first, "--model", second), max_kv=256)
    assert names(package / "Model") == ["Tiny", "Tiny-2"]
    assert folders_of(["a/Resources", "b/resources"]) == [
        "Model/Resources-2",
        "Model/resources-3",
    ]


def test_an_app_must_hold_all_of_them(ios, monkeypatch):
    room = delivery.app_size(4_500_000).download
    room_for_one = replace(store_limits()["app"], bytes=room)
    monkeypatch.setattr(
        delivery, "store_limits", lambda: {**store_limits(), "app": room_for_one}
    )
    [error] = ios(code=ExitCode.USAGE)["errors"]
    assert error["what"].startswith("demo and demo-4bit together have 5.1 MB and the app's")
    assert error["remedy"] == "Choose a smaller model or fewer bits."


def test_a_lock_cannot_name_a_folder_elsewhere(ios, run, package):
    ios()
    record = json.loads((package / lock.NAME).read_text("utf-8"))
    for folder in ("Model/..", "Model/../x", "../Model", "/Model", "Model/demo\n", "Model/a/b"):
        record["models"][1]["folder"] = folder
        (package / lock.NAME).write_text(json.dumps(record), "utf-8")
        assert run("verify", package).exit_code == ExitCode.OUTPUT
