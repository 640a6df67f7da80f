"""Conversations with random policies and traffic: the core does what its reference does."""

import copy
import dataclasses

import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from h2o_py import fast
from h2o_py.cache import join
from tests.h2o_py.cases import assert_same_state, largest_difference, random_tokens
from tests.h2o_py.test_properties import STORAGES, configs
from tests.h2o_py.test_recall_properties import held, loaded, recalls

DIM = 32
TOLERANCE = 2e-5  # of outputs in float32, some summed in another order
MOST_CONVERSATIONS = 3


class Conversation:
    """Caches of a model's layers, each on the core and on the reference."""

    def __init__(self, layers, is_joined):
        self.layers, self.is_joined = layers, is_joined
        for cache in (cache for pair in layers for cache in pair):
            cache.expects_scores = False
        self.joined()

    def joined(self):
        if self.is_joined:
            for caches in zip(*self.layers, strict=True):
                join(caches)

    def tokens(self, count, shape, sinks, is_mask_array):
        """A call of the model, layer by layer."""
        for pair in self.layers:
            new = random_tokens(count, **shape)
            outs = [attended(cache, new, sinks, is_mask_array) for cache in pair]
            yield outs

    def unattended(self, count, shape):
        """A call of a model whose attention does not pass through its caches."""
        for pair in self.layers:
            _, keys, values = random_tokens(count, **shape)
            rows = [cache.update_and_fetch(keys, values) for cache in pair]
            yield from zip(*rows, strict=True)
            for cache in pair:
                cache.settle()

    def trim(self, count):
        for ours, oracle in self.layers:
            assert ours.trim(count) == oracle.trim(count)

    def copy(self):
        twin = copy.copy(self)
        twin.layers = [tuple(cache.copy() for cache in pair) for pair in self.layers]
        return twin

    def restore(self):
        self.layers = [tuple(loaded(cache) for cache in pair) for pair in self.layers]
        self.joined()

    def check(self, context):
        for ours, oracle in self.layers:
            assert_same_state(ours, oracle, 1e-4, context)
            assert (ours.length, ours.recalled) == (oracle.length, oracle.recalled), context
            assert ours.is_trimmable() == oracle.is_trimmable(), context
            assert (ours.ledger.held is None) == (oracle.ledger.held is None), context
            if ours.ledger.held is not None:
                assert held(ours) == held(oracle), context
            assert (ours.chosen is None) == (oracle.chosen is None), context
            if ours.chosen is not None:
                assert ours.chosen.tolist() == oracle.chosen.tolist(), context


def attended(cache, new, sinks, is_mask_array):
    """One call, which asks sharply enough that no two shares are alike."""
    queries, keys, values = new
    mask = cache.make_mask(keys.shape[2], return_array=is_mask_array)
    cache.update_and_fetch(keys, values)
    return cache.attend(3 * queries, scale=DIM**-0.5, mask=mask, sinks=sinks)


ACTIONS = [
    *(("tokens", count) for count in (1, 1, 1, 1, 2, 3, 7, 19, 40)),
    *(("trim", 1), ("trim", 3), ("copy", 0), ("restore", 0), ("unattended", 3)),
]
"""What may happen next, and of how many tokens."""


@pytest.mark.filterwarnings("ignore::h2o_py.errors.H2ORecallWarning")
@pytest.mark.parametrize("recall", ["no recall", "each head", "all layers"])
@given(data=st.data())
@settings(max_examples=25)
def test_the_core_does_what_its_reference_does_in_any_conversation(recall, data):
    kv_heads = data.draw(st.integers(1, 2), "heads")
    group = data.draw(st.integers(1, 3), "group")
    shape = {"batch": data.draw(st.integers(1, 2), "batch"), "heads": kv_heads * group}
    shape |= {"kv_heads": kv_heads, "dim": DIM}
    layers = []
    for storage in data.draw(st.lists(st.sampled_from(list(STORAGES)), min_size=1, max_size=3)):
        make, oracle = STORAGES[storage]
        config = data.draw(configs(), "config")
        if recall != "no recall":
            config = dataclasses.replace(config, recall=data.draw(recalls(), "recall"))
        layers.append((make(config, fast), make(config, oracle)))
    mx.random.seed(data.draw(st.integers(0, 1000), "seed"))
    sinks = data.draw(st.booleans(), "sinks")
    sinks = mx.random.normal((kv_heads * group,)) if sinks else None
    is_mask_array = data.draw(st.booleans(), "array")

    conversations = [Conversation(layers, recall == "all layers")]
    actions = st.lists(st.sampled_from(ACTIONS), min_size=4, max_size=20)
    for action, count in [("tokens", 19), *data.draw(actions, "traffic")]:
        conversation = conversations[-1]
        results = []
        if action == "tokens":
            results = conversation.tokens(count, shape, sinks, is_mask_array)
        elif action == "unattended":
            results = conversation.unattended(count, shape)
        elif action == "trim":
            conversation.trim(count)
        elif action == "restore":
            conversation.restore()
        elif len(conversations) < MOST_CONVERSATIONS:
            conversations.append(conversation.copy())
        for ours, oracle in results:
            assert largest_difference(ours, oracle) <= TOLERANCE
        conversation.check((action, count))
        # The other one has its turn: what copies share neither changes.
        conversations.insert(0, conversations.pop())
