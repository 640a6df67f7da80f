"""Models that are measured, and what `bench` tells of one."""

import json
import platform
import socket
from types import SimpleNamespace

import pytest
from rich.console import Console

from h2o_pack.errors import ExitCode, UserError
from h2o_pack.measure import held, machine
from h2o_pack.measure.bench import (
    CACHES,
    EVERY_TOKEN,
    RECALLING,
    Generation,
    measure,
    print_bench,
    repeated_prompt,
    weights,
)
from h2o_pack.measure.machine import describe
from h2o_pack.measure.models import load
from h2o_py.routing import routed, routing_installed
from tests.bridge import schemas


def test_a_model_generates_with_every_cache_and_routing_is_left_as_it_was(demo):
    model, tokenizer = demo
    caches = (*CACHES, *EVERY_TOKEN, *RECALLING)
    result = measure(caches, model, repeated_prompt(tokenizer, 32), 24, 2, 1, "demo")
    assert [cache.name for cache in result.caches] == [cache.name for cache in caches]
    assert result.not_measured == ()
    assert (result.layers, result.dtype) == (4, "float32")
    assert {cache.prompt_tokens for cache in result.caches} == {32}
    memory = {cache.name: cache.bytes for cache in result.caches}
    assert memory["4"] < memory["8"] < memory["16"] < memory["16+recall"]
    assert memory["16"] < memory["kv"]
    assert memory["full/4"] < memory["full/k8v4"] < memory["full/8"] < memory["kv"]
    assert all(cache.peak_bytes >= cache.bytes // 2 > 0 for cache in result.caches)
    assert result.weights_bytes == sum(weight.nbytes for weight in weights(model).values())
    assert result.footprint_bytes > result.weights_bytes
    assert result.kernels == ()  # on a CPU
    assert not routing_installed()
    with (console := Console(width=200)).capture() as shown:
        print_bench(result, console)
    assert all(cache.title in shown.get() for cache in caches)


def test_an_archive_counts_once_among_the_bytes_of_caches(demo):
    model, tokenizer = demo
    caches = [RECALLING[0].make(32, 64) for _ in model.layers]
    with routed():
        generation = Generation(model, repeated_prompt(tokenizer, 40), caches)
    of_parts = [[*cache.rows, *cache.ledger] for cache in caches]
    own = sum(part.nbytes for parts in of_parts for part in parts if part is not None)
    archives = [cache.archive for cache in caches]
    archived = sum(archive.nbytes + archive.sketch_bytes for archive in archives)
    assert generation.bytes == own + archived


def test_the_command_prints_a_document(run):
    options = ("--max-kv", "128", "--prompt", "20", "--tokens", "1", "--quick", "--json")
    document = schemas.check(json.loads(run("bench", *options).stdout), "bench")
    names = [cache["name"] for cache in document["caches"]]
    assert names == [cache.name for cache in (*CACHES, *EVERY_TOKEN, *RECALLING)]
    assert {cache["prompt_tokens"] for cache in document["caches"]} == {20}
    assert document["caches"][0]["speed"] == pytest.approx(1.0)


def test_a_model_that_is_not_there_is_refused_by_name(tmp_path):
    with pytest.raises(UserError) as error:
        load(str(tmp_path / "nothing"))
    assert error.value.code == ExitCode.MODEL
    assert str(tmp_path / "nothing") in str(error.value)


def test_the_machine_is_described_without_its_name():
    here = describe()
    assert here.cores >= 1
    assert here.memory_bytes > 10**9
    assert here.instruction_set
    assert socket.gethostname() not in repr(here)


def test_a_mac_is_described_by_its_model(monkeypatch):
    answers = {"hw.model": "Mac15,3", "machdep.cpu.brand_string": "Apple M3"}
    monkeypatch.setattr(machine, "sysctl", answers.__getitem__)
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(platform, "node", lambda: "secret")
    monkeypatch.setattr(platform, "mac_ver", lambda: ("26.1", ("", "", ""), "arm64"))
    here = describe()
    assert (here.identifier, here.processor) == ("Mac15,3", "Apple M3")
    assert here.system_version == "26.1"
    assert "secret" not in repr(here)


def test_a_mac_is_asked_for_the_largest_footprint(monkeypatch):
    def proc_pid_rusage(_process, _version, usage):
        usage._obj[held._LARGEST : held._LARGEST + 8] = (123_456).to_bytes(8, "little")
        return 0

    library = SimpleNamespace(proc_pid_rusage=proc_pid_rusage)
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(held.ctypes, "CDLL", lambda *_args, **_options: library)
    assert held.largest_footprint() == 123_456
