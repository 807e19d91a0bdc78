"""The beam search keeps what helps the frozen model most, first."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.data.row import Message
from assay.labs.demos.demonstrations import DemonstrationSet, Query, query_row
from assay.labs.demos.generate import beam_search, searched
from assay.labs.demos.outcomes import gold_probabilities, probabilities, target_probabilities
from tests.labs.demos.scripted import scripted


def table(values: dict[tuple[int, ...], float]):
    return lambda states: [values[picks] for picks in states]


def test_the_candidate_that_raises_the_probability_most_ranks_first_and_harm_is_negative():
    """InfoScore is P(y | c, x) - P(y | x): helpful above 0, and never the closest to 0 first."""
    values = {(): 0.4, (5,): 0.9, (6,): 0.41, (7,): 0.1}
    beams = beam_search([7, 6, 5], 1, 3, table(values))
    assert [beam.picks for beam in beams] == [(5,), (6,), (7,)]
    assert [beam.score for beam in beams] == pytest.approx([0.5, 0.01, -0.3])


def test_p_is_the_geometric_mean_over_the_words_and_the_end(tmp_path):
    """exp(sum of log-probs / number of them), and one number more for the end of the turn."""
    frozen = scripted(tmp_path, [{"answered": "two words", "logps": [-0.3, -0.5, -1.0]}])
    row = query_row(
        DemonstrationSet("none", "", ()), Query("q", Message("user", "?"), ("two words",)), [], 0
    )
    expected = math.exp(-(0.3 + 0.5 + 1.0) / 3)
    assert target_probabilities(frozen, row, [()]) == pytest.approx([expected])
    assert probabilities(frozen, [(row, ())], ["two words"]) == pytest.approx([expected])


def test_gold_probability_weighs_distinct_answers_by_their_annotators(tmp_path):
    """Lever-Plus: sum of P(answer) * min(count / 3, 1); of answers that are simply right, of P."""
    rules = [{"answered": "cat", "logps": -1.0}, {"answered": "dog", "logps": -2.0}]
    frozen = scripted(tmp_path, rules)
    words = ("cat",) * 8 + ("dog", "Dog.")
    for metric, answers, expected in (
        ("vqa", words, math.exp(-1) + math.exp(-2) * 2 / 3),
        ("exact", ("cat", "dog"), math.exp(-1) + math.exp(-2)),
    ):
        found = DemonstrationSet(metric, "", (), metric)
        row = query_row(found, Query("q", Message("user", "?"), answers), [], 0)
        assert gold_probabilities(frozen, [(row, ())]) == pytest.approx([expected])


@given(st.data())
def test_a_wide_beam_is_the_exhaustive_search(data):
    """With room for every state, the first is the best of all ordered selections."""
    count, shots = data.draw(st.integers(2, 5)), data.draw(st.integers(1, 2))
    pool = data.draw(st.permutations(range(10, 10 + count)))
    states = [s for n in range(shots + 1) for s in itertools.permutations(pool, n)]
    values = {s: data.draw(st.floats(0, 1)) for s in states}
    beams = beam_search(pool, shots, 100, table(values))
    every = {s: values[s] - values[()] for s in states if len(s) == shots}
    assert {beam.picks: beam.score for beam in beams} == every
    assert [beam.score for beam in beams] == sorted(every.values(), reverse=True)


def test_a_narrow_beam_keeps_the_best_of_each_step_and_asks_as_often_as_it_says():
    asked = []

    def probability(states):
        asked.extend(states)
        return [len(picks) and picks[-1] / 10 + picks[0] / 100 for picks in states]

    beams = beam_search([1, 2, 3, 4], 2, 2, probability)
    assert [beam.picks for beam in beams] == [(3, 4), (2, 4)]
    assert len(asked) == searched(4, 2, 2) == 1 + 4 + 2 * 3
