"""A few attacks of `make fuzz`, on the usual core; and that a finding is one."""

from pathlib import Path
from random import Random

import pytest

from h2o_pack.errors import ExitCode
from h2o_py.cache import H2OKVCache
from tests.attacks import TooLongError, commands, core, passes
from tests.h2o_py.cases import random_tokens


@pytest.mark.filterwarnings("ignore")
def test_some_attacks_do_no_harm(tmp_path):
    for seed in range(1, 41):
        assert passes(core.ATTACKS, seed, tmp_path)


def test_what_is_used_after_an_attack_is_the_cache_that_was_taken(monkeypatch):
    """An empty cache in its place would only try calls."""
    offsets = []

    def step(cache, *arguments):
        offsets.append(cache.offset)
        return original(cache, *arguments)

    original = core.step
    monkeypatch.setattr(core, "step", step)
    cache = H2OKVCache(core.POLICIES[0])
    original(cache, *random_tokens(60, dim=32))
    for seed in range(4):
        twin = type(cache).restored(cache.arrays, cache.header)
        core.use(Random(seed), twin)  # noqa: S311
    assert min(offsets) >= 60


def test_some_attacks_on_commands_end_as_documented(tmp_path):
    for seed in range(8):
        assert passes(commands.ATTACKS, seed, tmp_path)


@pytest.mark.nightly("test_some_attacks_on_commands_end_as_documented")
def test_what_is_attacked_is_what_the_commands_read(tmp_path, monkeypatch):
    """Unchanged it is taken, so that an attack is not refused for something else."""
    expected = {"vendor": ExitCode.USAGE}
    monkeypatch.setenv("H2O_PACK_CACHE", str(tmp_path / "cache"))
    for number, target in enumerate(commands.TARGETS.values()):
        for at, call in enumerate(target.calls):
            place = tmp_path / f"{number}-{at}"
            place.mkdir()
            monkeypatch.chdir(place)
            arguments = call(target.make(place))
            assert commands.run(*arguments) == expected.get(arguments[0], ExitCode.OK)


@pytest.mark.parametrize("error", [RuntimeError, TooLongError, MemoryError])
def test_a_command_that_ends_otherwise_is_a_finding(error, tmp_path, monkeypatch, capsys):
    def fail(*_):
        raise error("found")

    monkeypatch.setattr("h2o_pack.cli.plan.devices.callback", fail)
    with pytest.raises((AssertionError, TooLongError)):
        commands.run("devices")


@pytest.mark.parametrize("error", [KeyError, IndexError, RecursionError, AssertionError])
def test_an_error_that_is_not_ours_is_a_finding(error, capsys):
    def fail(random, folder):
        raise error("found")

    for attack in core.ATTACKS:
        assert not passes([attack._replace(change=fail)], 1, Path())
    assert "found" in capsys.readouterr().err
