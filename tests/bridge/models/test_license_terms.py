"""The license of a model, by its card and its notices, and what is said of it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2o_pack.bundling import manifest
from h2o_pack.models.files import belongs, inference_needs
from h2o_pack.models.texts import (
    CARRIED,
    FREE,
    NO_LICENSE,
    NO_TEXT,
    ModelLicense,
    license_remark,
    read_license,
    terms,
)
from tests.bridge import schemas
from tests.bridge.trees import write_model
from tests.messages import says


def card(*lines):
    return {"README.md": "\n".join(["---", *lines, "---", "# A model"]).encode()}


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (["license: apache-2.0"], "apache-2.0"),
        (['license: "MIT"  '], "mit"),
        (["tags:", "- mlx", "license:", "- cc-by-4.0", "- mit"], "cc-by-4.0"),
        (["license: [gemma]"], "gemma"),
        (["license: other", "license_name: lfm1.0", "license_link: LICENSE"], "lfm1.0"),
        (["license: other"], "other"),
        (["language: en"], ""),
        (["license:"], ""),
    ],
)
def test_the_card_names_the_license(lines, found):
    assert read_license(card(*lines)).id == found


def test_what_stands_below_the_front_matter_is_not_read():
    text = b"# A model\n---\nlicense: mit\n---\n"
    assert read_license({"README.md": text}) == ModelLicense()


def test_the_link_of_the_card_is_kept():
    assert (
        read_license(card("license: other", "license_link: https://a.b")).link == "https://a.b"
    )


@given(st.binary())
def test_any_card_can_be_read_and_shown(data):
    found = read_license({"README.md": b"---\nlicense: " + data + b"\n---\n"})
    assert found.id.isprintable()
    assert len(found.id) <= 200


@pytest.mark.parametrize(
    "name", ["README.md", "LICENSE", "LICENSE.txt", "Notice", "USE_POLICY.md", "licence.md"]
)
def test_the_card_and_notices_belong_to_a_package(name):
    assert belongs(name)
    assert not inference_needs(name)


@pytest.mark.parametrize("name", ["model.gguf", "docs/LICENSE", "README.txt", "eval.json"])
def test_other_files_do_not(name):
    assert not belongs(name)


@pytest.mark.parametrize("name", sorted(terms()))
def test_a_license_that_asks_something_is_said_with_its_source(name):
    said = license_remark(ModelLicense(name, texts={"LICENSE": "..."}))
    assert terms()[name].asks in said
    assert terms()[name].source.startswith("https://")
    assert terms()[name].source in said
    assert NO_TEXT not in said
    assert license_remark(ModelLicense(name)).endswith(NO_TEXT)


def test_llama_asks_for_its_line_and_gemma_for_its_policy():
    assert '"Built with Llama"' in license_remark(ModelLicense("llama3.2"))
    assert "Prohibited Use Policy" in license_remark(ModelLicense("gemma"))


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("exaone", "no commercial use"),
        ("tongyi-qianwen-research", "no commercial use"),
        ("falcon-llm-license", "Acceptable Use Policy"),
        ("nvidia-open-model-license", "notice"),
        ("tencent-hunyuan-a13b", "European Union"),
    ],
)
def test_conditions_of_families_that_can_be_packaged_are_known(name, asked):
    assert asked in license_remark(ModelLicense(name))


def test_a_model_that_is_only_shipped_need_not_be_called_built_with_qwen():
    says(license_remark(ModelLicense("qwen-research")))


@pytest.mark.parametrize("name", FREE)
def test_nothing_is_said_of_a_free_license_whose_text_is_there(name):
    assert name not in terms()
    assert license_remark(ModelLicense(name, texts={"LICENSE": "..."})) == ""
    assert (license_remark(ModelLicense(name)) == "") == (name in CARRIED)


def test_an_unknown_license_should_be_read():
    said = license_remark(ModelLicense("house-rules", "https://a.b", {"LICENSE": "..."}))
    says(said)


def test_a_text_without_a_card_is_enough_and_neither_is_said():
    assert license_remark(ModelLicense(texts={"LICENSE": "..."})) == ""
    assert license_remark(ModelLicense()) == NO_LICENSE


@pytest.fixture
def package(run, tmp_path):
    """Package a small model with these files; return what the JSON says of the model."""

    def command(**files):
        folder = write_model(tmp_path / "tiny")
        for name, text in files.items():
            (folder / name.replace("_", ".")).write_text(text, "utf-8")
        arguments = ("--model", folder, "--max-kv", 96, "--output", tmp_path / "Tiny")
        result = run("ios", *arguments, "--no-vendor", "--json")
        assert result.exit_code == 0, result.stderr
        [made] = schemas.check(json.loads(result.stdout), "ios")["models"]
        return made

    return command


def test_card_and_notices_are_in_the_package_and_its_manifest(package, tmp_path):
    made = package(LICENSE="Do good.", README_md="---\nlicense: gemma\n---\n")
    assert made["license"] == {"id": "gemma", "link": "", "files": ["LICENSE"]}
    assert any("Gemma Terms of Use" in each for each in made["warnings"])
    listed = {each.path for each in manifest.read(tmp_path / "Tiny").files}
    assert {"LICENSE", "README.md"} < listed
    assert (tmp_path / "Tiny/Model/LICENSE").read_text() == "Do good."


def test_a_model_without_a_license_is_packaged_with_a_warning(package):
    made = package()
    assert made["license"] is None
    assert NO_LICENSE in made["warnings"]


def test_a_card_too_large_to_read_is_no_error(package):
    made = package(README_md="---\nlicense: mit\n---\n" + "x" * (1 << 20))
    assert made["license"] is None
