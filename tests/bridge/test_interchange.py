"""Caches that Python writes go on in Swift, and those that Swift writes in Python."""

import json
from dataclasses import replace
from pathlib import Path

import mlx.core as mx
import pytest
from mlx_lm.models.cache import (
    ArraysCache,
    CacheList,
    KVCache,
    RotatingKVCache,
    load_prompt_cache,
    save_prompt_cache,
)

from h2o_pack.parity.swift import Host, environment, prepare
from h2o_pack.parity.trace import TOLERANCES
from h2o_pack.plan.measured import read_measured
from h2o_py import H2OConfig, H2ORecall
from h2o_py.cache import H2OCacheList
from h2o_py.models import STORAGES
from tests.bridge import schemas
from tests.processes import ran

CONFIG = H2OConfig(24, sink_size=2, heavy_budget=10, recent_budget=8, pinned=((5, 7),))
RECALLING = {
    "16": H2ORecall(ask=4, reach=8),
    "k8v4": H2ORecall(ask=4, reach=8),
    "heavy=4,recent=16": H2ORecall(ask=1, reach=4, archive_bits=16),
}
HEADS, KV_HEADS, DIM, SCALE = 4, 2, 64, 0.125
NEXT = [1, 1, 7, 1, 40, 1, 1]
METADATA = {"model": "tiny", "chat": "\N{PARTY POPPER} caf\u00e9"}

# Tokens of each call before the file is written, and whether the last awaits its attention.
SITUATIONS = {
    "few": ([5], False, "float32"),
    "room": ([9, 1, 1], False, "float32"),
    "evicted": ([40, 1, 1, 5, 1], False, "float32"),
    "archived": ([40, 280, 1, 1], False, "float32"),
    "awaiting": ([30, 12], True, "float32"),
    "bfloat16": ([40, 1, 1], False, "bfloat16"),
    "float16": ([40, 1, 1], False, "float16"),
}


def tokens(count: int, seed: int, dtype: str) -> tuple[mx.array, mx.array, mx.array]:
    keys = mx.random.split(mx.random.key(seed), 3)
    q, k, v = (
        mx.random.normal((1, heads, count, DIM), key=key).astype(getattr(mx, dtype))
        for heads, key in zip((HEADS, KV_HEADS, KV_HEADS), keys, strict=True)
    )
    return q, k, v


def attend(cache, q, k, v) -> mx.array:
    cache.update_and_fetch(k, v)
    return cache.attend(q, scale=SCALE, mask="causal" if q.shape[2] > 1 else None)


def caches_of(situation: str):
    """One cache of each storage that has been through a situation.

    Then some with recall, unless attention is awaited: recall ends where it does not come.
    """
    counts, awaiting, dtype = SITUATIONS[situation]
    caches = [make(CONFIG, 32) for make in STORAGES.values()]
    caches += [
        STORAGES[kv](replace(CONFIG, recall=recall), 32)
        for kv, recall in RECALLING.items()
        if not awaiting
    ]
    for cache in caches:
        cache.expects_queries = not awaiting
    for step, count in enumerate(counts):
        q, k, v = tokens(count, step, dtype)
        for cache in caches:
            if awaiting and step == len(counts) - 1:
                cache.update_and_fetch(k, v)
            else:
                attend(cache, q, k, v)
    return caches


def other_caches():
    """Caches that layers without full attention keep, with something in each."""
    rotating, plain, recurrent = RotatingKVCache(8, keep=1), KVCache(), ArraysCache(2)
    for count in (6, 1, 1, 1):
        _, k, v = tokens(count, count, "float32")
        rotating.update_and_fetch(k, v)
        plain.update_and_fetch(k, v)
    recurrent[0], recurrent[1] = k, v
    return [rotating, plain, recurrent]


def list_of(scored):
    """Make the caches of a layer that has a recurrent state besides."""
    return H2OCacheList(other_caches()[2], scored)


def in_use(cache) -> list[mx.array]:
    if isinstance(cache, ArraysCache):
        return cache.cache
    return [rows[..., : cache.offset, :] for rows in (cache.keys, cache.values)]


def numbers(cache) -> dict[str, int]:
    return {name: value for name, value in vars(cache).items() if isinstance(value, int)}


@pytest.fixture(scope="module")
def interchanged(demo_package, tmp_path_factory) -> Path:
    """Write files for Swift and let it go on with them; return the folder."""
    folder = tmp_path_factory.mktemp("interchange")
    entries = []
    for name, (_, _, dtype) in SITUATIONS.items():
        caches = caches_of(name)
        prompt = str(folder / f"{name}.python.safetensors")
        scored = [*caches[:-1], list_of(caches[-1])]
        save_prompt_cache(prompt, [*scored, *other_caches()], METADATA)
        arrays = {}
        for step, count in enumerate(NEXT):
            q, k, v = tokens(count, 100 + step, dtype)
            arrays |= {f"{step}.q": q, f"{step}.k": k, f"{step}.v": v}
            for index, cache in enumerate(caches):
                arrays[f"{index}.{step}.out"] = attend(cache, q, k, v)
                arrays[f"{index}.{step}.positions"] = cache.positions
        mx.save_safetensors(str(folder / f"{name}.steps.safetensors"), arrays)
        entry = {"name": name, "steps": NEXT, "scale": SCALE, "tolerance": TOLERANCES[dtype]}
        entries.append(entry)
    (folder / "interchange.json").write_text(json.dumps({"situations": entries}))
    swift_test(demo_package, "InterchangeTests", H2O_INTERCHANGE=str(folder))
    return folder


def swift_tests(host: Host, *options: object, **settings: str) -> str:
    """Run a package's tests, which must pass; return what SwiftPM says."""
    process = ran("swift", "test", *host.options, *options, env=environment(settings))
    output = process.stdout + process.stderr
    failures = [line for line in output.splitlines() if ": error: " in line]
    assert process.returncode == 0, "\n".join([*failures, output[-3000:]])
    return output


def swift_test(package: Path, name: str, **settings: str) -> None:
    """Run tests of a package on the stand-in; none of them may be skipped."""
    output = swift_tests(prepare(package.resolve()), "--filter", name, **settings)
    assert "1 test skipped" not in output


@pytest.mark.swift
def test_swift_takes_the_system_prompt_that_was_prepared(demo_package, run, tmp_path):
    prompt = tmp_path / "system.txt"
    prompt.write_text("Answer in one sentence.", encoding="utf-8")
    output = ("--output", tmp_path / "Demo", "--no-vendor")
    result = run("ios", "--model", "demo", "--max-kv", 64, "--system", prompt, *output)
    assert result.exit_code == 0, result.output
    swift_test(
        demo_package,
        "testThePreparedCachesHaveReadTheSystemPrompt",
        H2O_MODEL_DIR=str(tmp_path / "Demo/Model"),
    )


@pytest.mark.swift
def test_the_apps_measurements_have_the_format_of_bench(demo_package, tmp_path):
    file = tmp_path / "measurements.json"
    swift_test(demo_package, "testTheDocumentHasTheFormatOfBench", H2O_MEASUREMENTS=str(file))
    schemas.check(json.loads(file.read_text("utf-8")), "bench")
    result = read_measured(file)
    assert [run.prompt_tokens for run in result.caches] == [1, 40]
    assert [prompt.prompt_tokens for prompt in result.not_measured] == [96]


@pytest.mark.swift
class TestWhatSwiftWrote:
    """That Swift goes on rightly with Python's files, the fixture asserts."""

    @pytest.mark.parametrize("situation", SITUATIONS)
    def test_goes_on_in_python_to_the_same_outputs_and_positions(self, interchanged, situation):
        path = interchanged / f"{situation}.swift.safetensors"
        swift_caches, metadata = load_prompt_cache(str(path), return_metadata=True)
        assert metadata == METADATA
        swift_caches = [
            entry.caches[1] if isinstance(entry, CacheList) else entry for entry in swift_caches
        ]
        own_caches = caches_of(situation)
        dtype = SITUATIONS[situation][2]
        for step, count in enumerate(NEXT):
            for cache in own_caches:
                attend(cache, *tokens(count, 100 + step, dtype))
        for step, count in enumerate([1, 5, 1, 1]):
            q, k, v = tokens(count, 200 + step, dtype)
            for cache, swift_cache in zip(
                own_caches, swift_caches[: len(own_caches)], strict=True
            ):
                assert type(swift_cache) is type(cache)
                expected, out = attend(cache, q, k, v), attend(swift_cache, q, k, v)
                difference = mx.abs(out.astype(mx.float32) - expected.astype(mx.float32))
                assert difference.max().item() <= TOLERANCES[dtype]
                assert mx.array_equal(mx.sort(swift_cache.positions), mx.sort(cache.positions))
                assert (swift_cache.offset, swift_cache.length) == (cache.offset, cache.length)
                assert swift_cache.config == cache.config
                assert swift_cache.header == cache.header

    def test_keeps_the_caches_of_other_layers(self, interchanged):
        path = str(interchanged / "evicted.swift.safetensors")
        layers = load_prompt_cache(path)[len(STORAGES) + len(RECALLING) - 1 :]
        assert type(layers[0]) is H2OCacheList
        caches = [layers[0].caches[0], *layers[1:]]
        for cache, expected in zip(caches, [other_caches()[2], *other_caches()], strict=True):
            assert type(cache) is type(expected)
            assert numbers(cache) == numbers(expected)
            for array, own_array in zip(in_use(cache), in_use(expected), strict=True):
                assert mx.array_equal(array, own_array)
