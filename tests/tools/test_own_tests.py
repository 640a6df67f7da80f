"""A test of upstream that ends otherwise with h2o-pack in it is named."""

import textwrap

import pytest

from h2o_pack.errors import ExitCode
from tests.bridge.trees import build_tree
from tools.upstream import own_tests

TESTS = textwrap.dedent(
    """
    from mlx_lm.models import cache
    import h2o_py

    class Model:
        layers = ()

    def test_same():
        assert h2o_py.H2OConfig(64).max_size == 64

    def test_routing():
        assert not h2o_py.routing_installed()

    def test_caches():
        assert cache.make_prompt_cache.__module__ == "mlx_lm.models.cache"
        assert not hasattr(cache.make_prompt_cache, "__wrapped__")

    def test_failing():
        raise AssertionError
    """
)


def test_what_ends_otherwise_or_is_missing_is_counted(capsys):
    plain = {"a": "passed", "b": "passed", "c": "failure"}
    other = {"a": "passed", "b": "error", "d": "passed"}
    assert own_tests.report("mlx-lm", plain, {"with routing": plain}) == 0
    assert own_tests.report("mlx-lm", plain, {"with routing": other}) == 3
    assert "  c: failure -> missing" in capsys.readouterr().out.splitlines()


@pytest.mark.nightly("test_what_ends_otherwise_or_is_missing_is_counted")
def test_tests_that_end_otherwise_are_named(tmp_path, capsys):
    build_tree(tmp_path, {"mlx-lm/tests/test_generate.py": TESTS})

    assert own_tests.main([str(tmp_path)]) == ExitCode.DIFFERENT

    lines = [
        line
        for line in capsys.readouterr().out.splitlines()
        if "mlx-lm" in line or "->" in line
    ]
    name = "tests.test_generate"
    assert [line.replace(f"{name}.", "").replace("test_generate.", "") for line in lines] == [
        "mlx-lm, as they are: 1 failure, 3 passed",
        "mlx-lm, with routing: 1 end otherwise",
        "  test_routing: passed -> failure",
        "mlx-lm, with H2O caches: 2 end otherwise",
        "  test_caches: passed -> failure",
        "  test_routing: passed -> failure",
    ]
