"""Texts beside a model's weights: its chat template, sampling, and license."""

import json
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from h2o_pack.bundling import manifest
from h2o_pack.errors import ExitCode, UserError
from h2o_pack.models.texts import (
    CARRIED,
    FREE,
    NO_LICENSE,
    NO_TEXT,
    ChatTemplate,
    ModelLicense,
    check_sampling,
    find_template,
    license_remark,
    read_license,
    terms,
    why_not,
)
from tests.bridge.trees import write_model
from tests.messages import refused, says

# Chat templates


CHATML = (
    "{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content }}"
    "{% generation %}{{ '<|im_end|>\\n' }}{% endgeneration %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
    "{%- if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"
    "{%- endif %}"
)
HELLO = [{"role": "user", "content": "hello"}]


def config(**values) -> dict[str, bytes]:
    return {"tokenizer_config.json": json.dumps(values).encode()}


def test_messages_are_rendered_as_transformers_does():
    (result,) = ChatTemplate(CHATML, "x").rendered([{"messages": HELLO}], "tiny")
    assert result["text"] == "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"


def test_special_tokens_and_the_date_can_be_read():
    files = config(
        bos_token={"content": "<s>"}, chat_template="{{ bos_token }}{{ strftime_now('%d') }}"
    )
    template = find_template(files, "tiny")
    assert template is not None
    chats = [{"messages": HELLO, "date": "22 Nov"}, {"messages": HELLO}]
    texts_of_chats = [result["text"] for result in template.rendered(chats, "tiny")]
    assert texts_of_chats == ["<s>22 Nov", "<s>02"]


def test_variables_are_what_not_every_template_is_given():
    source = (
        CHATML + "{% set ns = namespace(x=1) %}{{ raise_exception(tools) if reasoning_effort }}"
    )
    assert ChatTemplate(source, "x").variables == ("enable_thinking", "reasoning_effort")


PROBLEMS = {
    CHATML: "",
    "one\n{% if %}": (
        "cannot be parsed: line 2: Expected an expression, got 'end of statement block'"
    ),
    "{{ messages | upside_down }}": "cannot be parsed: line 1: No filter named 'upside_down'.",
    "{{ raise_exception('Roles alternate') }}": 'refuses a user\'s message: "Roles alternate"',
    "{{ unknown.name }}": "refuses a user's message: \"'unknown' is undefined\"",
    "{{ 1 / 0 }}": 'fails for a user\'s message: "division by zero"',
}


@pytest.mark.parametrize("source", PROBLEMS)
def test_a_template_that_cannot_be_used_is_described(source):
    (result,) = ChatTemplate(source, "x").rendered([{"messages": HELLO}], "tiny")
    assert why_not(result, "a user's message") == PROBLEMS[source]


def test_a_file_of_its_own_comes_before_the_tokenizers():
    files = {**config(chat_template="old"), "chat_template.jinja": b"new"}
    template = find_template(files, "tiny")
    assert template == ChatTemplate("new", "chat_template.jinja")
    older = {**config(chat_template="old"), "chat_template.json": b'{"chat_template": "new"}'}
    assert find_template(older, "tiny") == ChatTemplate("new", "chat_template.json")


def test_of_several_templates_the_default_is_taken():
    templates = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    assert find_template(config(chat_template=templates), "tiny") == ChatTemplate(
        "d", "tokenizer_config.json"
    )


def test_a_model_without_a_template_has_none():
    assert find_template({}, "tiny") is None
    assert find_template(config(chat_template=None), "tiny") is None


@pytest.mark.parametrize(
    ("files", "what"),
    [
        (config(chat_template=7), "chat_template in tokenizer_config.json is neither"),
        ({"chat_template.jinja": b"\xff"}, "chat_template.jinja is not UTF-8 text"),
        ({"tokenizer_config.json": b"["}, "tokenizer_config.json is not valid JSON"),
        (config(chat_template="\ud800"), "tokenizer_config.json contains half of a character"),
    ],
)
def test_files_without_what_they_should_have_are_refused(files, what):
    with pytest.raises(UserError, match=what):
        find_template(files, "tiny")


# Sampling


def data(**values) -> dict[str, bytes]:
    return {"generation_config.json": json.dumps(values).encode()}


refusal = partial(refused, check_sampling, code=ExitCode.MODEL)


def test_what_models_have_is_accepted():
    check_sampling(
        data(temperature=0.6, top_p=0.95, top_k=20, min_p=0, eos_token_id=[7, 9]), 10, "m"
    )
    check_sampling(
        data(temperature=0, top_k=-1, repetition_penalty=1.05, eos_token_id=0), 10, "m"
    )
    check_sampling(data(temperature=None, eos_token_id=None, max_length=20), 10, "m")


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"temperature": -0.5}, "temperature is -0.5, but must be a number of at least 0"),
        ({"temperature": "hot"}, 'temperature is "hot", but must be a number of at least 0'),
        (
            {"temperature": float("inf")},
            "temperature is inf, but must be a number of at least 0",
        ),
        ({"top_p": 1.5}, "top_p is 1.5, but must be a number from 0 to 1"),
        ({"top_p": True}, "top_p is true, but must be a number from 0 to 1"),
        ({"top_k": 2.5}, "top_k is 2.5, but must be an integer of at least -1"),
        ({"min_p": -1}, "min_p is -1, but must be a number from 0 to 1"),
        ({"repetition_penalty": 0}, "repetition_penalty is 0, but must be a number above 0"),
        ({"eos_token_id": 10}, "eos_token_id is 10, but the model has 10 tokens"),
        ({"eos_token_id": [1, "</s>"]}, 'eos_token_id is "</s>", but the model has 10 tokens'),
    ],
)
def test_what_no_model_can_be_sampled_with_is_refused(values, what):
    assert what in refusal(data(**values), 10, "m")


def test_all_that_is_wrong_is_said_at_once():
    says(refusal(data(top_p=2, min_p=2), 10, "m"))


# Licenses


def card(*lines):
    return {"README.md": "\n".join(["---", *lines, "---", "# A model"]).encode()}


@pytest.mark.parametrize(
    ("lines", "identifier"),
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
def test_the_card_names_the_license(lines, identifier):
    assert read_license(card(*lines)).id == identifier


def test_what_stands_below_the_front_matter_is_not_read():
    text = b"# A model\n---\nlicense: mit\n---\n"
    assert read_license({"README.md": text}) == ModelLicense()


def test_the_link_of_the_card_is_kept():
    assert (
        read_license(card("license: other", "license_link: https://a.b")).link == "https://a.b"
    )


@given(st.binary())
def test_any_card_can_be_read_and_shown(data):
    terms = read_license({"README.md": b"---\nlicense: " + data + b"\n---\n"})
    assert terms.id.isprintable()
    assert len(terms.id) <= 200


@pytest.mark.parametrize("name", sorted(terms()))
def test_a_license_that_asks_something_is_said_with_its_source(name):
    remark = license_remark(ModelLicense(name, texts={"LICENSE": "..."}))
    assert terms()[name].asks in remark
    assert terms()[name].source.startswith("https://")
    assert terms()[name].source in remark
    assert NO_TEXT not in remark
    assert license_remark(ModelLicense(name)).endswith(NO_TEXT)


@pytest.mark.parametrize("name", FREE)
def test_nothing_is_said_of_a_free_license_whose_text_is_there(name):
    assert name not in terms()
    assert license_remark(ModelLicense(name, texts={"LICENSE": "..."})) == ""
    assert (license_remark(ModelLicense(name)) == "") == (name in CARRIED)


def test_an_unknown_license_should_be_read():
    says(license_remark(ModelLicense("house-rules", "https://a.b", {"LICENSE": "..."})))


def test_a_text_without_a_card_is_enough_and_neither_is_said():
    assert license_remark(ModelLicense(texts={"LICENSE": "..."})) == ""
    assert license_remark(ModelLicense()) == NO_LICENSE


@pytest.fixture
def package(ios, tmp_path):
    """Package a small model with these files; return what the JSON says of the model."""

    def command(**files):
        folder = write_model(tmp_path / "tiny")
        for name, text in files.items():
            (folder / name.replace("_", ".")).write_text(text, "utf-8")
        [model] = json.loads(ios("--json", model=folder).stdout)["models"]
        return model

    return command


def test_card_and_notices_are_in_the_package_and_its_manifest(package, tmp_path):
    result = package(LICENSE="Do good.", README_md="---\nlicense: gemma\n---\n")
    assert result["license"] == {"id": "gemma", "link": "", "files": ["LICENSE"]}
    assert any("Gemma Terms of Use" in warning for warning in result["warnings"])
    paths = {file.path for file in manifest.read(tmp_path / "Demo").files}
    assert {"LICENSE", "README.md"} < paths
    assert (tmp_path / "Demo/Model/LICENSE").read_text() == "Do good."


def test_a_model_without_a_license_is_packaged_with_a_warning(package):
    result = package()
    assert result["license"] is None
    assert NO_LICENSE in result["warnings"]


def test_a_card_too_large_to_read_is_no_error(package):
    result = package(README_md="---\nlicense: mit\n---\n" + "x" * (1 << 20))
    assert result["license"] is None
