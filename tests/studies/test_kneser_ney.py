import numpy as np
import pytest

from studies.tiny_lm.kneser_ney import KneserNey, discounts

A, B, C = range(3)
SMALL = np.array([A, B, A, B, A, B, C, A, A])
"""Pairs: ab 3 times, ba twice, bc, ca and aa once."""


def test_discounts_follow_from_how_many_ngrams_were_seen_how_often() -> None:
    counts = np.array([1.0] * 4 + [2.0] * 2 + [3.0, 4.0, 9.0])
    assert discounts(counts) == pytest.approx((0.5, 1.25, 1.0))  # share = 4 / (4 + 2 * 2)


def test_a_corpus_too_small_for_discounts_loses_half_of_each_count() -> None:
    assert discounts(np.array([5.0, 7.0])) == (0.5, 1.0, 1.5)


def test_each_order_has_discounts_of_its_own() -> None:
    pairs = KneserNey(SMALL, 2, 3).orders[1]
    # three pairs once, one twice, one three times: share = 3 / (3 + 2 * 1) = 0.6
    once, twice, often = 1 - 2 * 0.6 * 1 / 3, 2 - 3 * 0.6 * 1 / 1, 3 - 4 * 0.6 * 0 / 1
    assert discounts(pairs.counts) == pytest.approx((once, twice, often))
    ones = KneserNey(SMALL, 2, 3).orders[0]
    assert discounts(ones.counts) == (1.0, 1.0, 3.0)


def test_lower_orders_count_the_distinct_tokens_seen_before() -> None:
    ones = KneserNey(SMALL, 2, 3).orders[0]
    assert dict(zip(ones.keys.tolist(), ones.counts.tolist(), strict=True)) == {
        A: 3,
        B: 1,
        C: 1,
    }


def test_probabilities_are_those_worked_out_by_hand() -> None:
    model = KneserNey(SMALL, 2, 3)
    # every single token loses all of its count: the lower order is 1/3 for each
    after_a = [(1 - 0.6) / 4 + 0.9 / 3, 0 / 4 + 0.9 / 3, 0.9 / 3]  # spared (3 + 0.6) / 4
    after_b = [(2 - 0.2) / 3 + 0.8 / 9, 0.8 / 9, (1 - 0.6) / 3 + 0.8 / 9]
    assert model.distribution(np.array([A])) == pytest.approx(np.array(after_a))
    assert model.distribution(np.array([B])) == pytest.approx(np.array(after_b))


def test_losses_are_the_logarithms_of_the_same_probabilities() -> None:
    model = KneserNey(SMALL, 2, 3)
    losses = model.losses(np.array([B, A, A]))
    expected = [
        1 / 3,
        model.distribution(np.array([B]))[A],
        model.distribution(np.array([A]))[A],
    ]
    assert np.exp(-losses) == pytest.approx(np.array(expected))


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_probabilities_sum_to_one_after_any_context(order: int) -> None:
    random = np.random.default_rng(0)
    corpus = random.zipf(1.5, 3000) % 11
    model = KneserNey(corpus, order, 12)  # id 11 is never seen
    for context in random.integers(0, 12, (50, order)):
        distribution = model.distribution(context)
        assert distribution.sum() == pytest.approx(1)
        assert (distribution > 0).all()


def test_a_repeated_text_is_predicted_better_by_longer_ngrams() -> None:
    corpus = np.tile(np.random.default_rng(1).permutation(np.repeat(np.arange(8), 9)), 20)
    losses = [KneserNey(corpus, order, 8).losses(corpus).mean() for order in (1, 2, 3, 4)]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.2 * losses[0]


def test_ngrams_that_fit_no_integer_are_refused() -> None:
    with pytest.raises(ValueError, match="63 bits"):
        KneserNey(SMALL, 7, 1024)
