"""An n-gram model with modified Kneser-Ney smoothing, interpolated.

S. F. Chen and J. Goodman, "An empirical study of smoothing techniques for language
modeling" (1999), section 3: the highest order uses counts, lower ones the number of
distinct tokens seen before an n-gram, and each order its own three discounts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Order:
    """One order's n-grams; a key holds an n-gram's tokens as digits, the oldest first."""

    length: int
    keys: Keys  # sorted
    counts: Floats
    discounted: Floats  # counts less their discounts
    contexts: Keys  # sorted; keys of the n-grams without their last token
    totals: Floats  # of counts, one a context
    spared: Floats  # what the discounts took, one a context: it goes to the lower order


class KneserNey:
    """Probabilities of the next token after up to `order` - 1 tokens.

    Args:
        tokens: [T] ids below `vocabulary`, one text after the other.
        order: the longest n-gram, of which keys fit into 63 bits.
        vocabulary: number of ids.

    """

    def __init__(self, tokens: NDArray[np.integer], order: int, vocabulary: int) -> None:
        if vocabulary**order >= 2**63:
            raise ValueError(f"{order}-grams of {vocabulary} tokens do not fit into 63 bits")
        self.vocabulary = vocabulary
        seen = [
            np.unique(windows(tokens, length, vocabulary), return_counts=True)
            for length in range(1, order + 1)
        ]
        self.orders = []
        for length in range(1, order + 1):
            keys, counts = seen[length - 1]
            if length < order:
                endings = seen[length][0] % vocabulary**length
                keys, counts = np.unique(endings, return_counts=True)
            self.orders.append(make_order(length, keys, counts.astype(float), vocabulary))

    def losses(self, tokens: NDArray[np.integer]) -> Floats:
        """Return -log P of each token given those before it, [T], in nats."""
        probability = np.full(len(tokens), 1 / self.vocabulary)
        for order in self.orders:
            if order.length > len(tokens):
                break
            keys = windows(tokens, order.length, self.vocabulary)
            start = order.length - 1  # earlier tokens have too little before them
            probability[start:] = self.interpolate(order, keys, probability[start:])
        losses: Floats = -np.log(probability)
        return losses

    def distribution(self, context: NDArray[np.integer]) -> Floats:
        """Return P of every token after `context`, [vocabulary]."""
        probability = np.full(self.vocabulary, 1 / self.vocabulary)
        for order in self.orders:
            if order.length - 1 > len(context):
                break
            before = context[len(context) - order.length + 1 :]
            key = int(windows(before, len(before), self.vocabulary)[0]) if len(before) else 0
            keys = key * self.vocabulary + np.arange(self.vocabulary)
            probability = self.interpolate(order, keys, probability)
        return probability

    def interpolate(self, order: Order, keys: Keys, lower: Floats) -> Floats:
        """Add what an order knows to the lower order's probabilities of the same tokens.

        A context that was never seen leaves them as they are.
        """
        discounted = look_up(order.keys, order.discounted, keys)
        contexts = keys // self.vocabulary
        totals = look_up(order.contexts, order.totals, contexts)
        spared = look_up(order.contexts, order.spared, contexts)
        known = np.where(totals > 0, totals, 1)
        return np.where(totals > 0, (discounted + spared * lower) / known, lower)


def windows(tokens: NDArray[np.integer], length: int, vocabulary: int) -> Keys:
    """Return the keys of all n-grams of `length` tokens, in order."""
    count = len(tokens) - length + 1
    keys = np.zeros(max(count, 0), np.int64)
    for offset in range(length):
        keys = keys * vocabulary + tokens[offset : offset + len(keys)]
    return keys


def make_order(length: int, keys: Keys, counts: Floats, vocabulary: int) -> Order:
    """Discount one order's counts."""
    table = np.array([0.0, *discounts(counts)])
    taken = table[np.minimum(counts, 3).astype(int)]
    contexts, inverse = np.unique(keys // vocabulary, return_inverse=True)
    return Order(
        length=length,
        keys=keys,
        counts=counts,
        discounted=counts - taken,
        contexts=contexts,
        totals=np.bincount(inverse, counts).astype(float),
        spared=np.bincount(inverse, taken).astype(float),
    )


def discounts(counts: Floats) -> tuple[float, float, float]:
    """Return what n-grams seen once, twice, and more often lose (equation 26).

    Where a corpus is too small to tell, half of 1, 2 and 3.
    """
    n = [0, *(int((counts == times).sum()) for times in (1, 2, 3, 4))]
    found = []
    for times in (1, 2, 3):
        discount = times / 2
        if n[1] and n[times]:
            share = n[1] / (n[1] + 2 * n[2])
            discount = times - (times + 1) * share * n[times + 1] / n[times]
        found.append(discount if 0 <= discount <= times else times / 2)
    return found[0], found[1], found[2]


def look_up(keys: Keys, values: Floats, wanted: Keys) -> Floats:
    """Return the values of the wanted keys, 0 for keys that are not there."""
    places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[places] == wanted, values[places], 0.0)
