"""Scores: what is refused, what is counted, what a record becomes."""

import numpy as np
import pytest

from assay.errors import InputError
from assay.judge.scores import ItemScores, item_scores
from tests.judge.simulated import item_ids


@pytest.mark.parametrize(
    ("ids", "scores", "clusters", "says"),
    [
        (("a", "b"), [[1.0]], None, "1.*2 items"),
        (("a", "a"), [[1.0], [0.0]], None, "occurs twice"),
        (("a", "b"), [[1.0], [0.0]], ("x",), "1 clusters for 2 items"),
        (("a",), [[np.nan]], None, "no item has a score"),
        (("a",), [[57.5]], None, "percentage"),
        (("a",), [[-0.5]], None, "outside 0 to 1"),
    ],
)
def test_scores_that_cannot_be_judged_are_refused(ids, scores, clusters, says):
    with pytest.raises(InputError, match=says):
        ItemScores(ids, np.array(scores), clusters)


def test_scores_cannot_be_changed_behind_a_verdict():
    given = np.array([[1.0], [0.0]])
    scores = ItemScores(item_ids(2), given)
    given[0] = 0.0
    assert scores.mean == 0.5
    with pytest.raises(ValueError, match="read-only"):
        scores.scores[0] = 1.0


def test_missing_answers_and_changing_repeats_are_counted():
    nan = np.nan
    scores = ItemScores(item_ids(4), np.array([[1, 0], [1, nan], [nan, nan], [0, 0]]))
    assert (scores.missing, scores.changed_between_repeats, scores.repeats) == (3, 1, 2)
    assert scores.binary


def test_records_in_any_order_become_a_table_with_gaps_for_abstentions():
    records = [("b", 1, 1.0), ("a", 0, 0.5), ("b", 0, None), ("a", 2, 1.0)]
    scores = item_scores(records, {"a": "left", "b": "right"})
    expected = [[np.nan, 1.0, np.nan], [0.5, np.nan, 1.0]]
    assert scores.item_ids == ("b", "a")
    assert scores.clusters == ("right", "left")
    np.testing.assert_array_equal(scores.scores, expected)
