"""Plans: what is planned for is seen as often as the plan says, on simulated experiments."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from assay.errors import InputError
from assay.judge.arms import crossed_error
from assay.judge.cluster_robust import cluster_means, p_value
from assay.judge.sample_size import (
    Design,
    Variances,
    given_discordance,
    items_for,
    plan,
    smallest_difference,
    variances_of,
)
from assay.judge.scores import Array, ItemScores
from assay.judge.significance import mid_p_mcnemar
from tests.judge.simulated import discordant_pairs, item_ids

LIFT = 0.06


def answers(
    rng: np.random.Generator, items: int, seeds: int, repeats: int, spread: float = 0.0
) -> list[Array]:
    """Two arms of S x I x R answers; items differ in ease, and in what the other arm gains."""
    ease = rng.uniform(0.2, 0.7, items)
    gain = np.clip(rng.normal(LIFT, 0.1, items), -0.2, 0.3)
    arms = []
    for chance in (ease, ease + gain):
        luck = rng.normal(0, spread, (seeds, 1)) + rng.uniform(-0.1, 0.1, (seeds, items))
        chance_SI = np.clip(chance + luck * (seeds > 1), 0, 1)
        arms.append((rng.random((repeats, seeds, items)) < chance_SI).astype(float))
    return [np.moveaxis(arm, 0, 2) for arm in arms]


def measured(arm_SIR: Array) -> list[ItemScores]:
    return [ItemScores(item_ids(len(run)), run) for run in arm_SIR]


@pytest.mark.parametrize("arms", [2, 4])
def test_the_items_of_a_plan_from_a_discordance_see_the_difference_in_80_percent(arms):
    design = Design(0, arms=arms)
    items = items_for(given_discordance(0.2), design, 0.05)
    assert items is not None
    pairs = discordant_pairs(np.random.default_rng(1), items, 0.2, 0.05)
    level = 0.05 / (arms - 1)
    assert np.mean(mid_p_mcnemar(*pairs) < level) == pytest.approx(0.8, abs=0.03)


def test_repeats_planned_from_a_pilot_see_the_difference_in_80_percent():
    rng = np.random.default_rng(2)
    control, other = (measured(arm) for arm in answers(rng, 4000, 1, 2))
    items = items_for(variances_of(control, other), Design(0, repeats=4), LIFT)
    assert items is not None
    differences = []
    for _ in range(400):
        control_SIR, other_SIR = answers(rng, items, 1, 4)
        differences.append((other_SIR - control_SIR)[0].mean(1))
    found = cluster_means(np.array(differences).T, np.ones(items), (-1.0, 1.0))
    assert np.mean(p_value(found) < 0.05) == pytest.approx(0.8, abs=0.06)


def test_seeds_planned_from_a_pilot_see_the_difference_in_80_percent():
    rng = np.random.default_rng(3)
    found = [variances_of(*map(measured, answers(rng, 1000, 4, 2, 0.02))) for _ in range(10)]
    known = Variances(
        *(float(np.mean([getattr(v, n) for v in found])) for n in ("items", "sampling", "luck")),
        seeds=float(np.mean([v.seeds or 0.0 for v in found])),
    )
    assert known.seeds == pytest.approx(2 * 0.02**2, rel=0.5)
    items = items_for(known, Design(0, seeds=4), LIFT)
    assert items is not None
    rejected = 0
    for _ in range(400):
        control_SIR, other_SIR = answers(rng, items, 4, 1, 0.02)
        arms = other_SIR.mean(2), control_SIR.mean(2)
        error = crossed_error(arms, None, 1.0)
        student = abs(arms[0].mean() - arms[1].mean()) / error.error
        rejected += 2 * special.stdtr(error.freedom, -student) < 0.05
    assert rejected / 400 == pytest.approx(0.8, abs=0.07)


def test_components_of_a_pilot_are_those_that_made_it():
    rng = np.random.default_rng(4)
    ease, gain = rng.normal(0, 1, 3000), rng.normal(0, 0.5, 3000)
    arms = []
    for shift in (0.0, gain):
        luck = rng.normal(0, 0.7, (3, 3000)) + rng.normal(0, 2.0, (3, 1))
        sampled = rng.normal(0, 1.5, (3, 3000, 2))
        cells = ((ease + shift + luck)[..., None] + sampled).clip(-30, 30)
        arms.append([ItemScores(item_ids(3000), run, bounds=(-30.0, 30.0)) for run in cells])
    found = variances_of(*arms)
    assert found.items == pytest.approx(0.25, rel=0.4)
    assert found.sampling == pytest.approx(2 * 1.5**2, rel=0.05)
    assert found.luck == pytest.approx(2 * 0.7**2, rel=0.1)
    assert found.seeds is not None and 1 < found.seeds < 40
    assert found.discordance is None


@settings(max_examples=20)
@given(st.floats(0.01, 0.5), st.floats(0.01, 0.5), st.floats(0, 0.01), st.integers(2, 5))
def test_more_of_anything_never_sees_less(items, sampling, seeds, count):
    v = Variances(items, sampling, 0.01, seeds)
    first = smallest_difference(v, Design(200, 2, count))
    assert first is not None
    for more in (Design(300, 2, count), Design(200, 3, count), Design(200, 2, count + 1)):
        found = smallest_difference(v, more)
        # More items beside few seeds leave fewer degrees of freedom, by a little.
        assert found is not None and found <= 1.1 * first
    stricter = smallest_difference(v, Design(200, 2, count, arms=3))
    assert stricter is not None and stricter > first


def test_a_plan_says_what_its_items_see_and_how_many_see_the_difference():
    known = Variances(0.02, 0.3, 0.0, 0.0)
    own, *needed = plan(known, 0.03, [Design(50), Design(0), Design(0, 4)]).designs
    assert own.smallest is not None and own.smallest > 0.03 and not own.enough
    assert needed[0].design.items > needed[1].design.items
    for each in needed:
        assert each.enough and each.smallest is not None and each.smallest <= 0.03


@pytest.mark.parametrize(("difference", "power"), [(0.0, 0.8), (1.5, 0.8), (0.1, 1.0), (0.1, 0.2)])
def test_a_difference_or_power_that_cannot_be_is_refused(difference, power):
    with pytest.raises(InputError):
        plan(given_discordance(0.2), difference, [Design(0)], power)
