from __future__ import annotations

from h2o_pack.errors import MEANINGS, ExitCode, UserError, nearest


def test_an_error_says_what_where_and_what_next():
    error = UserError(
        "decay = 2 is too large", where="h2o.toml:7", remedy="Lower it.", code=ExitCode.USAGE
    )
    assert str(error) == "decay = 2 is too large (h2o.toml:7). Lower it."


def test_an_error_without_a_place_has_no_brackets():
    assert str(UserError("no", remedy="Go.", code=ExitCode.TOOL)) == "no. Go."


def test_the_nearest_name_is_offered_whatever_its_case():
    assert nearest("QWEN2", ["llama", "Qwen3"]) == 'Did you mean "Qwen3"? '


def test_no_name_is_offered_when_none_is_near():
    assert nearest("zebra", ["llama", "qwen3"]) == ""


def test_every_exit_code_is_documented():
    assert set(MEANINGS) == set(ExitCode)


def test_a_name_that_goes_on_is_nearer_than_one_spelt_alike():
    names = ("Qwen3-8B-4bit", "Qwen3-4B-4bit", "Qwen3-4B-Instruct-4bit")
    assert nearest("qwen3-4b", names) == 'Did you mean "Qwen3-4B-4bit"? '
    assert nearest("", names) == ""
