"""LIM scores: worked by hand, again in numpy, and what must hold for any curves."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import InputError
from assay.judge.selection import fill_gaps, learning_impact

SHARES = st.integers(0, 8).map(lambda right: right / 8)


@st.composite
def complete(draw: st.DrawFn) -> dict[str, list[float]]:
    """Curves of one length that are not right everywhere."""
    epochs = draw(st.integers(1, 6))
    curve = st.lists(SHARES, min_size=epochs, max_size=epochs)
    found = draw(st.lists(curve, min_size=1, max_size=8))
    found[0][0] = min(found[0][0], 0.5)
    return {f"p{i}": curve for i, curve in enumerate(found)}


def test_scores_worked_by_hand():
    # The mean is (.25, .75): scale .5625 + .0625 = .625; a and b are .25 off in both epochs, which
    # is .125 / .625 = .2; c is the mean; d is off by .75 and .25, which is .625 / .625.
    curves = {"a": (0, 0.5), "b": (0.5, 1), "c": (0.25, 0.75)}
    found = learning_impact(curves)
    assert found.mean == (0.25, 0.75)
    assert found.scores == pytest.approx({"a": 0.8, "b": 0.8, "c": 1.0})


@given(complete())
def test_the_formula_is_that_of_the_paper(curves: dict[str, list[float]]):
    array_PK = np.array(list(curves.values()))
    mean_K = array_PK.mean(axis=0)
    wanted = 1 - ((array_PK - mean_K) ** 2).sum(1) / ((1 - mean_K) ** 2).sum()
    found = learning_impact(curves)
    assert list(found.scores) == list(curves)
    np.testing.assert_allclose(list(found.scores.values()), wanted, atol=1e-9)
    np.testing.assert_allclose(found.mean, mean_K)


@pytest.mark.parametrize(
    ("curve", "filled"),
    [
        ((None, 0.5, 1.0), (0.5, 0.5, 1.0)),
        ((0.25, None, 1.0), (0.25, 1.0, 1.0)),
        ((0.25, 0.5, None), (0.25, 0.5, None)),
        ((None, None, 0.5), (None, 0.5, 0.5)),
        ((None, 0.5, None, 1.0), (0.5, 0.5, 1.0, 1.0)),
    ],
)
def test_a_missing_epoch_is_the_next_one_where_that_was_measured(curve, filled):
    assert fill_gaps(curve) == filled


@pytest.mark.parametrize(
    ("curves", "said"),
    [
        ({"a": (1.0, None)}, "no prompt was measured in every epoch"),
        ({}, "no prompt was measured in every epoch"),
        ({"a": (1.0, 1.0), "b": (None, 1.0)}, "every answer of every epoch is right"),
    ],
)
def test_curves_without_a_score_are_refused(curves, said):
    with pytest.raises(InputError, match=said):
        learning_impact(curves)
