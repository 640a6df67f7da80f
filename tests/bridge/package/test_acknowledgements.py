"""`BundledModel.acknowledgements`: the model and the code, with their licenses."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from h2o_pack.facts import components, license_text, pins
from h2o_pack.files import write
from h2o_pack.models.texts import ModelLicense
from h2o_pack.package.render import acknowledgements, shared_texts
from h2o_pack.spec import CacheSpec
from tests.bridge.plans import plan_of, rendered
from tests.processes import output_of

NOT_IN_APPS = {"swift-syntax"}  # a compiler plugin
HOSTILE = 'Terms \\(exit(1)) """ #"""# \\\n\n  \u00a9 2026, \u2028\u4e2d\u6587 "q"\t\\'


@pytest.fixture
def plan(model):
    return plan_of(model, CacheSpec(max_kv=512))


def licensed(plan, terms):
    """The same package with a model of this license."""
    [model] = plan.models
    source = replace(model.source, texts=replace(model.source.texts, license=terms))
    return replace(plan, models=(replace(model, source=source),))


def test_every_package_that_an_app_is_built_of_is_named():
    names = {component.name for component in components()}
    assert set(pins()) - NOT_IN_APPS <= names
    packages = {component.package for component in components() if component.package}
    assert packages == set(pins()) - NOT_IN_APPS - {"mlx", "mlx-c"}


def test_each_has_a_copyright_and_a_license():
    for component in components():
        assert component.copyright, component.name
        assert component.texts, component.name
        assert all(len(license_text(name)) > 300 for name in component.texts)


def test_our_own_license_is_that_of_the_project():
    project = (Path(__file__).parents[3] / "LICENSE").read_text("utf-8")
    component = components()[0]
    assert component.name == "h2o-pack"
    text = f"MIT License\n\n{component.copyright[0]}\n\n{license_text('mit')}"
    assert project.split() == text.split()


def test_the_model_comes_first_with_its_own_texts(plan):
    texts = {"LICENSE": "Do good.", "NOTICE": "By us."}
    terms = ModelLicense("house-rules", "https://a.b/terms", texts)
    first = acknowledgements(licensed(plan, terms))[0]
    assert (first.name, first.license, first.source) == (
        "tiny",
        "house-rules",
        "https://a.b/terms",
    )
    assert first.notice == "LICENSE\n\nDo good.\n\nNOTICE\n\nBy us."
    assert first.texts == ()


def test_each_model_of_a_package_of_several_is_named(plan):
    [second] = licensed(plan, ModelLicense("mit", texts={"LICENSE": "Other terms."})).models
    works = acknowledgements(replace(plan, models=(*plan.models, second)))
    assert [work.notice for work in works[:2]] == ["", "LICENSE\n\nOther terms."]
    assert works[2].name == "h2o-pack"


def test_the_apache_license_is_there_where_a_model_has_no_text_of_it(plan):
    works = acknowledgements(licensed(plan, ModelLicense("apache-2.0")))
    assert works[0].texts == ("apache-2.0",)
    assert shared_texts(works)["apache-2.0"].split()[:2] == ["Apache", "License"]
    own = licensed(plan, ModelLicense("apache-2.0", texts={"LICENSE": "..."}))
    assert acknowledgements(own)[0].texts == ()


@pytest.mark.swift
def test_swift_has_each_text_as_it_was(plan, tmp_path):
    plan = licensed(plan, ModelLicense("x", texts={"LICENSE": HOSTILE}))
    files = rendered(plan)
    generated = files["Sources/TinyModel/BundledModel+Acknowledgements.swift"]
    type_of_it = files["Sources/H2OSessions/H2OAcknowledgement.swift"]
    main = """
import Foundation
enum BundledModel {}
let works = BundledModel.acknowledgements.map { [$0.name, $0.license, $0.source, $0.text] }
print(String(decoding: try JSONEncoder().encode(works), as: UTF8.self))
"""
    sources = {
        "type.swift": type_of_it,
        "works.swift": generated.replace("import H2OSessions\n", ""),
        "main.swift": main,
    }
    assert generated.isascii()
    write.write_files(tmp_path, sources)
    build = ["swiftc", "-swift-version", "6", *sources, "-o", "program"]
    output_of(*build, cwd=tmp_path)
    works = acknowledgements(plan)
    shared = shared_texts(works)
    expected = []
    for work in works:
        parts = [work.notice, *(shared[name] for name in work.texts)]
        text = "\n\n".join("\n".join(part.splitlines()) for part in parts)
        expected.append([work.name, work.license, work.source, text])
    assert json.loads(output_of(tmp_path / "program")) == expected
