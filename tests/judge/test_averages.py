"""Averages over cells: shared items count once, so that agreement is not counted twice."""

import numpy as np
import pytest

from assay.judge.averages import Average, average_change
from assay.judge.intervals import difference_interval
from assay.judge.scores import ItemScores
from tests.judge.simulated import single_pass


def drawn(seed: int, items: int, chance: float = 0.5, first: int = 0) -> ItemScores:
    scores = (np.random.default_rng(seed).random(items) < chance).astype(float)
    return ItemScores(tuple(f"item-{first + i:04d}" for i in range(items)), scores[:, None])


def average(cells: list[ItemScores]) -> Average:
    """Of cells against a control that has nothing right."""
    return average_change([(ItemScores(c.item_ids, 0 * c.scores), c) for c in cells])


def test_the_average_of_one_cell_is_that_of_its_items():
    cell = drawn(1, 120)
    found = average([cell])
    expected = difference_interval(cell.item_means - cell.mean, None, (-1.0, 1.0))
    assert found.mean == cell.mean
    assert found.interval.low == pytest.approx(cell.mean + expected.low)
    assert found.interval.high == pytest.approx(cell.mean + expected.high)


def test_copies_of_a_cell_make_nothing_surer_and_other_items_do():
    cell = drawn(1, 200)
    copies = average([cell] * 4)
    apart = average([drawn(1, 200, first=1000 * i) for i in range(4)])
    one = average([cell])
    assert copies.interval.half_width == pytest.approx(one.interval.half_width)
    assert apart.interval.half_width == pytest.approx(one.interval.half_width / 2, rel=0.1)
    assert (copies.items, apart.items) == (200, 800)


def test_nested_cells_cover_as_often_as_they_say():
    rng = np.random.default_rng(3)
    hits = 0
    for _ in range(200):
        scores = (rng.random(160) < 0.4).astype(float)
        nested = [single_pass(scores[:n]) for n in (40, 80, 160)]
        found = average(nested).interval
        hits += found.low <= 0.4 <= found.high
    assert 0.91 <= hits / 200 <= 0.99


def test_the_average_change_is_paired():
    control = drawn(5, 150)
    better = single_pass(np.maximum(control.scores[:, 0], np.arange(150) % 10 == 0))
    found = average_change([(control, better)] * 2)
    assert found.mean == pytest.approx(better.mean - control.mean)
    assert found.interval.low > 0
    alike = average_change([(control, control)])
    assert alike.mean == 0 and alike.interval.low < 0 < alike.interval.high
