"""What a package says of the size of its app: what the store sends, and what is installed."""

from __future__ import annotations

import json

import pytest

from h2o_pack.bundling import manifest
from h2o_pack.bundling.delivery import app_size, model_bytes
from h2o_pack.facts import app_file, store_limits
from h2o_pack.hub.resolve import resolve
from h2o_pack.models.catalogue import as_model, find
from h2o_pack.plan.plan_tables import size_sentence
from tests.bridge import schemas

APART = pytest.mark.parametrize(
    "way", [("--asset-pack",), ("--download", "https://example.com/m")]
)


@pytest.fixture
def package(run, tmp_path):
    """Package the demo model without Vendor; return the size as JSON has it."""

    def command(*options):
        output = ("--output", tmp_path / "Demo", "--no-vendor", "--json")
        made = run("ios", "--model", "demo", "--max-kv", 96, *output, *options)
        assert made.exit_code == 0, made.output
        return schemas.check(json.loads(made.stdout), "ios")["size"]

    return command


@pytest.fixture
def prompt(tmp_path):
    path = tmp_path / "system.txt"
    path.write_text("You are brief.")
    return ("--system", path)


def test_the_models_bytes_are_those_of_all_files_that_are_bundled(package, tmp_path, prompt):
    size = package(*prompt)
    assert size["models"] == manifest.read(tmp_path / "Demo").size
    assert size["models"] > package("--no-recall")["models"] == resolve("demo").size


def test_a_dry_run_counts_the_caches_of_a_system_prompt_at_most(package, prompt):
    planned = package(*prompt, "--dry-run")["models"]
    assert planned >= package(*prompt)["models"] > package("--dry-run")["models"]


def test_code_and_models_are_downloaded_and_installed(package):
    size = package("--dry-run")
    assert size["code_least"] <= size["code"] <= size["code_most"]
    assert size["download"] == size["installed"] == size["models"] + size["code"]


@APART
def test_models_that_come_apart_are_installed_and_not_downloaded_from_the_store(package, way):
    size = package("--dry-run", *way)
    assert size["download"] == size["code"]
    assert size["installed"] == size["models"] + size["code"]


def test_users_are_asked_before_more_than_the_store_downloads_by_cellular():
    most = store_limits()["cellular"].bytes - app_size(0).code
    assert not app_size(most).asks
    assert app_size(most + 1).asks
    assert not app_size(most + 1, apart=True).asks
    assert "asks users before it downloads more than 200 MB" in size_sentence(
        app_size(most + 1)
    )
    assert "asks" not in size_sentence(app_size(most))


def test_the_grammar_engine_counts_where_the_upstream_version_has_one():
    [engine] = (part for part in app_file().part if part.upstream_version)
    assert app_size(0).code == app_size(0, upstream="3.31.4").code + engine.bytes
    assert app_size(0).code_most == app_size(0, upstream="3.31.4").code_most + engine.most


def test_people_see_what_is_downloaded_and_what_is_installed():
    size = app_size(500_000_000)
    code = f"{size.code / 1e6:.0f} MB"
    span = f"{size.code_least / 1e6:.0f} to {size.code_most / 1e6:.0f}"
    assert size_sentence(size).startswith(
        f"about {size.download / 1e9:.2f} GB to download and to install, its code about "
        f"{code} ({span}) and models 0.50 GB; the store takes up to 4.00 GB"
    )
    assert size_sentence(app_size(500_000_000, apart=True)) == (
        f"about {size.code / 1e6:.1f} MB to download from the store, its code about {code} "
        f"({span}), and about {size.installed / 1e9:.2f} GB installed with 0.50 GB that come "
        "apart."
    )


def test_files_that_are_not_listed_are_estimated_by_the_vocabulary():
    model = as_model(find("Qwen3-4B-4bit"))
    more = model_bytes(model) - model.weights.bytes
    assert 11_422_654 < more < 25_000_000  # its tokenizer.json on the hub


def test_a_plan_says_what_an_app_with_the_model_weighs(run):
    made = run("plan", "--model", "Qwen3-4B-4bit", "--max-kv", 512, "--json")
    size = schemas.check(json.loads(made.stdout), "plan")["size"]
    assert size["models"] == model_bytes(as_model(find("Qwen3-4B-4bit")))
    assert size["asks"]
