"""A test of upstream that ends otherwise with h2o-pack in it is named."""

import textwrap
from types import SimpleNamespace

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


SWIFT = """#!/bin/sh
cd "$3" || exit 9
grep -q 'name: "MLXLMTests"' Package.swift && test -f Tests/MLXLMTests/T.swift || exit 9
echo "Test Case 'LM.testA' started"
echo "Test Case 'LM.testA' passed (0.1 seconds)"
case "$(cat Libraries/*.swift)" in
plain) echo "Test plain passed after 0.1 seconds." ;;
edited*added) echo "Test edited failed after 0.1 seconds." ;;
esac
"""


def test_tests_with_another_result_or_none_are_counted(capsys):
    plain = {"a": "passed", "b": "passed", "c": "failure"}
    other = {"a": "passed", "b": "error", "d": "passed"}
    assert own_tests.print_differences("mlx-lm", plain, {"with routing": plain}) == 0
    assert own_tests.print_differences("mlx-lm", plain, {"with routing": other}) == 3
    assert "  c: failure -> missing" in capsys.readouterr().out.splitlines()


def test_swifts_tests_run_without_and_with_the_edits(tmp_path, monkeypatch):
    """A `swift` of our own prints how the tests of the sources that it finds ended."""
    target = (
        '.testTarget(\n            name: "MLXLMTests", path: "Tests/MLXLMTests"\n        ),'
    )
    manifest = "targets: [\n        // h2o-pack: no tests\n        // h2o-pack: no tests\n]\n"
    build_tree(
        tmp_path,
        {
            "clones/mlx-swift-lm/Package.swift": f"targets: [\n        {target}\n]\n",
            "clones/mlx-swift-lm/Libraries/A.swift": "plain\n",
            "clones/mlx-swift-lm/Tests/MLXLMTests/T.swift": "",
            "package/Vendor/mlx-swift-lm/Package.swift": manifest,
            "package/Vendor/mlx-swift-lm/Libraries/A.swift": "edited\n",
            "package/Vendor/mlx-swift-lm/Libraries/B.swift": "added\n",
            "bin/swift": SWIFT,
        },
    )
    (tmp_path / "bin/swift").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    record = SimpleNamespace(vendor=SimpleNamespace(host="linux"))
    monkeypatch.setattr(own_tests.lock, "read", lambda _package: record)
    work = tmp_path / "work"
    work.mkdir()

    plain, edited = own_tests.of_mlx_swift_lm(
        tmp_path / "clones/mlx-swift-lm", tmp_path / "package", work
    )

    assert plain == {"LM.testA": "passed", "plain": "passed"}
    assert edited == {"LM.testA": "passed", "edited": "failed"}


@pytest.mark.nightly("test_tests_with_another_result_or_none_are_counted")
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
