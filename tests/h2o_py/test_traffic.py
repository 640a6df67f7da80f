"""Conversations with random policies and traffic: the core does what its reference does."""

import copy
import dataclasses

import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from h2o_pack.parity import reference
from h2o_py import H2ORecall
from h2o_py._compiled import ext
from h2o_py.config import H2OConfig
from h2o_py.policy_fields import LARGEST
from tests.h2o_py.cases import (
    BACKENDS,
    TOLERANCE,
    assert_invariants,
    assert_same_archive,
    assert_same_state,
    in_use,
    largest_difference,
    make_cache,
    random_tokens,
    using_instructions,
)
from tests.nightly import nightly_except

STORED = [
    "16",
    "8",
    "4",
    "k8v4",
    "k4v8",
    "heavy=8,recent=16",
    "heavy=4,recent=16",
    "heavy=4,recent=8",
    "heavy=8,recent=4",
    "heavy=8,recent=8",
    "heavy=16,recent=4",
    "heavy=16,recent=16",
]
PAIRS = [(kv, recalls) for kv in STORED for recalls in (False, True)]
EVERYDAY = [PAIRS[2 * i + i // 2 % 2] for i in range(0, len(STORED), 2)]
"""Every second storage once."""
MOST_CONVERSATIONS = 3
DTYPES = [mx.float32, mx.float16, mx.bfloat16]


@st.composite
def configs(draw):
    """Small policies; drawn as budgets so that each fits."""
    sink = draw(st.integers(0, 5), "sink")
    recent = draw(st.integers(1, 12), "recent")
    heavy = draw(st.integers(0, 12), "heavy")
    spare = draw(st.integers(1, 6), "spare")
    pins = draw(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 3)), max_size=2), "pins")
    return H2OConfig(
        sink + recent + heavy + spare + sum(count for _, count in pins),
        sink_size=sink,
        heavy_budget=heavy,
        recent_budget=recent,
        score=draw(st.sampled_from(["peak", "softmax", "abs_logit"]), "score"),
        pinned=tuple((begin, begin + count) for begin, count in pins),
    )


@st.composite
def recall_settings(draw, bits=(4, 8, 16)):
    """Small settings, so that some of the archive is left out."""
    return H2ORecall(
        ask=draw(st.integers(1, 9), "ask"),
        reach=draw(st.sampled_from([0, 1, 3, 8, 64, LARGEST]), "reach"),
        archive_bits=draw(st.sampled_from(bits), "bits"),
        limit=draw(st.sampled_from([0, 0, 1 << 16]), "limit"),
    )


class Conversation:
    """Caches of a model's layers, each on the core and on the reference."""

    def __init__(self, layers, tolerance):
        self.layers, self.tolerance = layers, tolerance
        for cache in (cache for pair in layers for cache in pair):
            cache.expects_queries = False

    def tokens(self, new, mask, sinks):
        """A call of the model, layer by layer, which asks sharply: no two shares are alike."""
        for pair, (queries, keys, values) in zip(self.layers, new, strict=True):
            outs = []
            for cache, its_mask in zip(pair, masks(pair[0], queries, mask), strict=True):
                cache.update_and_fetch(keys, values)
                queries_now = (3 * queries).astype(queries.dtype)
                scale = queries.shape[3] ** -0.5
                outs.append(cache.attend(queries_now, scale=scale, mask=its_mask, sinks=sinks))
            assert largest_difference(*outs) <= self.tolerance

    def unattended(self, new):
        """A call of a model whose attention does not pass through its caches."""
        for pair, (_, keys, values) in zip(self.layers, new, strict=True):
            views = [cache.update_and_fetch(keys, values) for cache in pair]
            for view, oracles in zip(*views, strict=True):
                assert view.dtype == oracles.dtype == keys.dtype
                assert largest_difference(view, oracles) <= self.tolerance
            for cache in pair:
                cache.settle()

    def trim(self, count):
        for cache, oracle in self.layers:
            assert cache.trim(count) == oracle.trim(count)

    def copy(self):
        twin = copy.copy(self)
        twin.layers = [tuple(cache.copy() for cache in pair) for pair in self.layers]
        return twin

    def load(self):
        """Go on with caches that were saved, and with oracles that were not."""
        self.layers = [(loaded(cache), oracle) for cache, oracle in self.layers]

    def check(self, context):
        for cache, oracle in self.layers:
            assert_same_state(cache, oracle, 1e-4, context)
            assert cache.length == oracle.length, context
            assert cache.is_trimmable() == oracle.is_trimmable(), context
            for array, oracle_array in zip(in_use(cache), in_use(oracle), strict=True):
                assert mx.array_equal(array, oracle_array), context
            assert (cache.archive is None) == (oracle.archive is None), context
            if cache.archive is not None:
                assert_same_archive(cache.archive, oracle.archive)
            assert_invariants(cache)


def loaded(cache, backend=None):
    """Return the cache as its arrays and strings give it back, on this or another backend."""
    twin = copy.copy(cache)
    twin.backend = backend or cache.backend
    twin.arrays, twin.header = cache.arrays, cache.header
    return twin


def masks(cache, queries, kind):
    """The core's mask of new tokens and the reference's, which is causal in fewer words."""
    tokens = queries.shape[2]
    causal = cache.make_mask(tokens)
    if tokens == 1 or kind == "causal":
        return causal, causal
    mask = cache.make_mask(tokens, return_array=True)
    if kind == "array":
        return mask, causal
    if kind == "added":
        return mx.where(mask, 0.0, -mx.inf).astype(queries.dtype), causal
    sees_itself = mx.eye(*mask.shape, k=mask.shape[1] - tokens) > 0
    sparse = mask & ((mx.random.uniform(shape=mask.shape) < 0.6) | sees_itself)
    return sparse, sparse


ACTIONS = [
    *(("tokens", count) for count in (1, 1, 1, 1, 1, 1, 2, 3, 7, 19, 40)),
    *(("trim", 1), ("trim", 3), ("copy", 0), ("load", 0), ("unattended", 3)),
]
"""What may happen next, and of how many tokens."""


@pytest.mark.filterwarnings("ignore::h2o_py.errors.H2ORecallWarning")
@pytest.mark.parametrize(("kv", "recalls"), nightly_except(EVERYDAY, PAIRS))
@given(data=st.data())
@settings(max_examples=4)
def test_the_core_does_what_its_reference_does_in_any_conversation(kv, recalls, data):
    draw = data.draw
    kv_heads = draw(st.integers(1, 2), "heads")
    heads = kv_heads * draw(st.integers(1, 5), "group")
    dtype = draw(st.sampled_from(DTYPES), "dtype")
    backend = draw(st.sampled_from(list(BACKENDS)), "backend")
    dims = [32, 32, 32, 64, 96, 128] if kv != "16" else [32, 32, 32, 64, 80, 96, 128]
    dim = draw(st.sampled_from(dims), "dim")
    shape = {"heads": heads, "kv_heads": kv_heads, "dim": dim, "dtype": dtype}
    shape["batch"] = draw(st.integers(1, 2), "batch")
    layers = []
    more = st.lists(st.sampled_from(STORED), max_size=1 if dim != 80 else 0)
    for storage in [kv, *draw(more, "other layers")]:
        config = draw(configs(), "config")
        if recalls:
            recall = draw(recall_settings((16,) if dim == 80 else (4, 8, 16)), "recall")
            config = dataclasses.replace(config, recall=recall)
        layers.append(
            tuple(
                make_cache(storage, config, module, 32)
                for module in (BACKENDS[backend], reference)
            )
        )
    mx.random.seed(draw(st.integers(0, 1000), "seed"))
    sinks = mx.random.normal((heads,)) if draw(st.booleans(), "sinks") else None
    mask = draw(st.sampled_from(["causal", "array", "added", "sparse"]), "mask")
    first = ("tokens", draw(st.sampled_from([19, 19, 19, 19, 19, 300]), "first"))
    actions = st.lists(st.sampled_from(ACTIONS), min_size=4, max_size=16)
    conversations = [Conversation(layers, 6 * TOLERANCE[dtype])]
    with using_instructions(draw(st.sampled_from(ext.instruction_sets()), "instructions")):
        for action, count in [first, *draw(actions, "traffic")]:
            conversation = conversations[-1]
            new = [random_tokens(max(1, count), **shape) for _ in layers]
            if action == "tokens":
                conversation.tokens(new, mask, sinks)
            elif action == "unattended":
                conversation.unattended(new)
            elif action == "trim":
                conversation.trim(count)
            elif action == "load":
                conversation.load()
            elif len(conversations) < MOST_CONVERSATIONS:
                conversations.append(conversation.copy())
            conversation.check((action, count))
            # The other one has its turn: what copies share neither changes.
            conversations.insert(0, conversations.pop())
