"""What `h2o-pack bench` tells of a model is measured with every cache."""

from __future__ import annotations

import json
import socket

import pytest

from h2o_pack.errors import ExitCode, UserError
from h2o_pack.measure.bench import CACHES, measure, repeated_prompt
from h2o_pack.measure.machine import describe
from h2o_pack.measure.models import load
from h2o_py.routing import routing_installed
from tests.bridge import schemas


def test_a_model_generates_with_every_cache_and_routing_is_left_as_it_was(demo):
    model, tokenizer = demo
    result = measure(CACHES, model, repeated_prompt(tokenizer, 128), 128, 4, 2, "demo")
    assert [cache.name for cache in result.caches] == [cache.name for cache in CACHES]
    assert result.refused == {}
    assert (result.layers, result.dtype, result.prompt_tokens) == (4, "float32", 160)
    memory = {cache.name: cache.bytes for cache in result.caches}
    assert memory["4bit"] < memory["8bit"] < memory["dense"] < memory["kv"]
    assert not routing_installed()


def test_the_command_prints_a_line_for_each_cache_and_a_document(run):
    options = ("--max-kv", "128", "--tokens", "1", "--quick")
    text = run("bench", *options).output
    assert all(cache.title in text for cache in CACHES)
    document = schemas.check(json.loads(run("bench", *options, "--json").stdout), "bench")
    assert document["caches"][0]["speed"] == pytest.approx(1.0)


def test_a_model_that_is_not_there_is_refused_by_name(tmp_path):
    with pytest.raises(UserError) as caught:
        load(str(tmp_path / "nothing"))
    assert caught.value.code == ExitCode.MODEL
    assert str(tmp_path / "nothing") in str(caught.value)


def test_the_machine_is_described_without_its_name():
    machine = describe()
    assert machine.cores >= 1
    assert machine.instruction_set
    assert socket.gethostname() not in repr(machine)
