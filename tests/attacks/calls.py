"""Calls of the core's functions with changed arguments."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import mlx.core as mx

from h2o_py import fast
from h2o_py.rows import Ledger, RowFormat, Rows
from tests.attacks import mutations
from tests.attacks.saved import some_cache
from tests.h2o_py import core
from tests.h2o_py.cases import fallback, random_tokens

Arguments = dict[str, Any]


def change_call(random: Random, folder: Path) -> None:
    """One call of any function, with one to three of its arguments changed."""
    calls = [_write, _write, _attend, _attend, _attend, _trim, _attention, _quantized]
    function, given = random.choice(calls)(random)
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        name = random.choice(sorted(given))
        given[name] = changed(random, given[name])
    mx.eval(function(**given))


def change_layer(random: Random, folder: Path) -> None:
    """Some calls of a layer's cache, some of them with changed arguments."""
    cache = some_cache(random)
    layer, ledger = cache._layer, cache.ledger
    batch, heads = (1, 2) if ledger is None else ledger.positions.shape[:2]
    shape: Any = {"batch": batch, "heads": 2 * heads, "kv_heads": heads, "dim": 32}
    for _ in range(random.choice([1, 2, 4])):
        q, k, v = random_tokens(random.choice([1, 1, 2, 9, 60]), **shape)
        tokens = {"keys": k, "values": v}
        calls: list[tuple[Any, Arguments]] = [
            (layer.write, {**tokens, "copy": random.random() < 0.5}),
            (layer.attend, {"queries": q, "scale": 0.2, "mask": "causal"}),
            (layer.trim, {"n": 3}),
            (partial(setattr, layer, "ledger"), {"value": ledger}),
            (layer.views, {}),
            (layer.arrays, {}),
            (layer.join, {"choice": fast.prompt_choice(), "layer": 1}),
        ]
        function, given = random.choices(calls, [4, 4, 1, 1, 1, 1, 1])[0]
        if given and random.random() < 0.5:
            name = random.choice(sorted(given))
            given[name] = changed(random, given[name])
        if "value" in given:
            function(tuple(given["value"] or ()))
        else:
            function(**given)
    mx.eval(layer.arrays())


def changed(random: Random, value: Any) -> Any:
    """An argument of a function, changed."""
    if isinstance(value, mx.array):
        return mutations.array(random, value)
    if isinstance(value, (Rows, Ledger)):
        fields = [name for name in value._fields if getattr(value, name) is not None]
        name = random.choice(fields)
        return value._replace(**{name: mutations.array(random, getattr(value, name))})
    if isinstance(value, RowFormat):
        bits = random.choice([4, 8, 16])
        changes = [
            {"key_bits": bits, "value_bits": bits},
            {"recent_bits": random.choice([None, 4, 8, 16])},
            {"group_size": random.choice([32, 64, 128])},
            {"dtype": random.choice(mutations.DTYPES)},
            {"rotated": not value.rotated},
        ]
        return dataclasses.replace(value, **random.choice(changes))
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return mutations.integer(random)
    if isinstance(value, float):
        return random.choice(mutations.FLOATS)
    return value


def _of_cache(random: Random) -> tuple[Any, Arguments]:
    cache = some_cache(random)
    cache.settle()
    assert cache.positions is not None
    batch, heads = cache.positions.shape[:2]
    shape: Any = {"batch": batch, "heads": 2 * heads, "kv_heads": heads, "dim": 32}
    dtype = cache.row_format.dtype if cache.row_format.has_ring else mx.float32
    tokens = random_tokens(random.choice([1, 1, 2, 9, 30]), dtype=dtype, **shape)
    state = {"rows": cache.rows, "config": cache.config, "row_format": cache.row_format}
    return (cache, tokens), {**state, "offset": cache.offset}


def _write(random: Random) -> tuple[Any, Arguments]:
    (cache, (_q, k, v)), given = _of_cache(random)
    new = {"keys": k, "values": v, "victim": cache.ledger.victim}
    return core.cache_write, {**given, **new, "copy": random.random() < 0.5}


def _attend(random: Random) -> tuple[Any, Arguments]:
    (cache, (q, k, v)), given = _of_cache(random)
    rows = core.cache_write(**given, keys=k, values=v, victim=cache.ledger.victim, copy=True)
    count = rows.pool.shape[2]
    masks = [None, "causal", mx.zeros((q.shape[2], count)), mx.ones((1, 1, 1, 1), mx.bool_)]
    new = {"rows": rows, "ledger": cache.ledger, "tokens": q.shape[2], "scale": 0.2}
    new |= {"queries": random.choice([q, q, None]), "mask": random.choice(masks)}
    new["sinks"] = random.choice([None, mx.zeros((q.shape[1],))])
    function = random.choice([core.cache_attend, _on_a_gpu("cache_attend")])
    return function, {**given, **new}


def _trim(random: Random) -> tuple[Any, Arguments]:
    (cache, _), given = _of_cache(random)
    del given["offset"]
    return core.trim_ledger, {**given, "ledger": cache.ledger, "length": 3}


def _attention(random: Random) -> tuple[Any, Arguments]:
    q, k, v = random_tokens(random.choice([1, 2, 9]), dim=32)
    masks = [None, "causal", mx.zeros((1, k.shape[2]))]
    options = {"scale": 0.2, "mask": random.choice(masks)}
    name = "scaled_dot_product_attention_with_scores"
    function = random.choice([getattr(core, name), _on_a_gpu(name)])
    return _positional(function), {"a": q, "b": k, "c": v, **options}


def _quantized(random: Random) -> tuple[Any, Arguments]:
    q, k, v = random_tokens(random.choice([1, 2, 9]), dim=64)
    bits, group = random.choice([4, 8]), random.choice([32, 64])
    names = "bcdefg"
    parts = [*mx.quantize(k, group, bits), *mx.quantize(v, group, bits)]
    given = {"a": q, **dict(zip(names, parts, strict=True))}
    function = core.scaled_dot_product_attention_quantized_with_scores
    options = {"scale": 0.2, "bits": bits, "group_size": group, "mask": None}
    return _positional(function), {**given, **options}


def _on_a_gpu(name: str) -> Any:
    """What a GPU runs for calls that the kernels do not take, after the same checks."""

    def call(*arrays: Any, **given: Any) -> Any:
        getattr(core, name)(*arrays, **given)
        return getattr(fallback, name)(*arrays, **given)

    return call


def _positional(function: Any) -> Any:
    """The function with its arrays by the letters a, b, c and so on."""

    def call(**given: Any) -> Any:
        arrays = [given.pop(name) for name in sorted(given) if len(name) == 1]
        return function(*arrays, **given)

    return call
