"""Of repeated passes it is known what a further repeat or a further item would buy."""

import numpy as np
import pytest

from assay.judge.sample_size import noise_of
from assay.judge.scores import ItemScores
from tests.judge.simulated import item_ids


def passes(chance_I: np.ndarray, repeats: int, seed: int) -> ItemScores:
    rng = np.random.default_rng(seed)
    scores = rng.binomial(1, chance_I[:, None], (len(chance_I), repeats)).astype(float)
    return ItemScores(item_ids(len(chance_I)), scores)


def test_the_split_finds_the_variances_that_made_the_scores():
    """Items differ with the variance 0.09; an answer at p = 0.5 +- 0.15 varies by 0.2275."""
    signs = np.where(np.arange(2000) % 2, 0.15, -0.15)
    control, other = passes(0.5 - signs, 4, 1), passes(0.5 + signs, 4, 2)
    found = noise_of([control], [other])
    assert found is not None
    sampling = 2 * 0.2275 / 4
    assert found.sampling_share == pytest.approx(sampling / (0.09 + sampling), abs=0.03)
    assert found.now == pytest.approx(((0.09 + sampling) / 2000) ** 0.5, rel=0.03)
    further = 2 * 0.2275 / 5
    assert found.further_repeat == pytest.approx(((0.09 + further) / 2000) ** 0.5, rel=0.03)
    assert found.further_items == pytest.approx(found.now * (4 / 5) ** 0.5)
    assert found.all_repeats == pytest.approx((0.09 / 2000) ** 0.5, rel=0.05)
    assert found.all_repeats < found.further_items < found.further_repeat < found.now


def test_repeats_that_never_change_buy_nothing():
    scores = np.repeat(np.arange(40)[:, None] % 2, 3, axis=1).astype(float)
    control = ItemScores(item_ids(40), scores)
    other = ItemScores(item_ids(40), scores[::-1])
    found = noise_of([control], [other])
    assert found is not None and found.sampling_share == 0
    assert found.further_repeat == found.now == found.all_repeats > found.further_items


def test_of_one_pass_or_of_no_difference_nothing_is_said():
    control, other = (passes(np.full(20, 0.5), 1, seed) for seed in (1, 2))
    assert noise_of([control], [other]) is None
    twice = passes(np.full(20, 0.5), 2, 1)
    assert noise_of([control], [twice]) is None
    same = passes(np.ones(20), 2, 1)
    assert noise_of([same], [same]) is None
