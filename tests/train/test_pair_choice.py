"""Which pairs are drawn: by the gap of their scores, the same for the same seed, none of equals."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.data.episode import Episode, Reward, Turn
from assay.experiment.training_settings import Pairs
from assay.train.pair_choice import choose_pairs, chosen_places, groups_with_pairs, pair_count

GROUPS = [[1.0, 0.5, 0.0], [0.5, 0.5], [None, 0.2, 0.8], [None, 1.0], []]
NAMES = ["a", "b", "c", "d", "e"]
SCORES = st.one_of(st.none(), st.integers(-20, 20).map(lambda tenths: tenths / 10))


def test_every_two_scores_that_differ_are_a_pair_once_with_the_better_one_first() -> None:
    assert chosen_places(GROUPS, NAMES, Pairs(), 0) == [
        (0, 0, 1),
        (0, 0, 2),
        (0, 1, 2),
        (2, 2, 1),
    ]


def test_a_gap_below_the_least_one_is_no_pair_and_one_of_its_size_is() -> None:
    assert chosen_places(GROUPS, NAMES, Pairs(least_gap=0.6), 0) == [(0, 0, 2), (2, 2, 1)]
    assert len(chosen_places(GROUPS, NAMES, Pairs(least_gap=0.5), 0)) == 4
    assert 1.0 - 0.9 < 0.1, "by a rounding"
    assert chosen_places([[1.0, 0.9]], ["a"], Pairs(least_gap=0.1), 0) == [(0, 0, 1)]


def test_draws_follow_the_cube_of_the_gap() -> None:
    """1 : 1/8 : 1/8 : .216 of the four pairs' gaps 1, .5, .5, .6."""
    drawn = Counter(chosen_places(GROUPS, NAMES, Pairs(total=20_000), 3))
    whole = 1 + 0.125 + 0.125 + 0.216
    for places, weight in {(0, 0, 2): 1, (0, 0, 1): 0.125, (2, 2, 1): 0.216}.items():
        assert drawn[places] / 20_000 == pytest.approx(weight / whole, abs=0.012)
    even = Counter(chosen_places(GROUPS, NAMES, Pairs(total=20_000, power=0.0), 3))
    assert all(count / 20_000 == pytest.approx(0.25, abs=0.012) for count in even.values())


@given(st.integers(0, 50), st.integers(1, 30))
def test_a_draw_depends_on_seed_and_number_alone(seed: int, count: int) -> None:
    rule, more = Pairs(per_group=count), Pairs(per_group=count + 5)
    found = chosen_places(GROUPS, NAMES, rule, seed)
    assert found == chosen_places(GROUPS, NAMES, rule, seed)
    longer = chosen_places(GROUPS, NAMES, more, seed)
    assert [p for p in longer if p[0] == 0][:count] == [p for p in found if p[0] == 0]
    # Another group before it changes no draw of a group.
    before = chosen_places([[1.0, 0.0], *GROUPS], ["z", *NAMES], rule, seed)
    assert [(g - 1, a, b) for g, a, b in before if g > 0] == found


@given(
    st.lists(st.lists(SCORES, max_size=4), max_size=4),
    st.sampled_from([Pairs(), Pairs(total=7), Pairs(per_group=3)]),
)
def test_the_count_is_known_without_drawing(values: list[list[float | None]], rule) -> None:
    names = [str(n) for n in range(len(values))]
    found = chosen_places(values, names, rule, 5)
    assert len(found) == pair_count(values, rule)
    assert all((values[g][a] or 0) > (values[g][b] or 0) for g, a, b in found)
    assert {g for g, _, _ in chosen_places(values, names, Pairs(), 5)} == {
        g for g, group in enumerate(values) if len({v for v in group if v is not None}) > 1
    }
    assert groups_with_pairs(values, rule) == len(
        {g for g, *_ in chosen_places(values, names, Pairs(), 0)}
    )


def test_pairs_hold_the_episodes_with_their_scores() -> None:
    def episode(n: int, value: float | None) -> Episode:
        turn = Turn((0,), (n,), (True,))
        return Episode(f"q#{n}", "q", (turn,), Reward(value))

    group = tuple(episode(n, value) for n, value in enumerate([0.25, None, 1.0]))
    (pair,) = choose_pairs([(), group], Pairs(), 0)
    assert (pair.chosen.id, pair.rejected.id, pair.scores) == ("q#2", "q#0", (1.0, 0.25))
    assert pair.gap == 0.75
