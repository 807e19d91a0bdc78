"""Numbers that cannot be: no number that may be printed so is ever called impossible."""

from decimal import ROUND_DOWN, Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.judge.audit.arithmetic import cut_off, on_grid, prints
from tests.judge.audit.faults import average_of, found, losses, metric, one_run, search, two_runs

DIGITS = st.integers(0, 4)


def printed(value: Fraction, digits: int) -> Decimal:
    """A number as it is printed with some digits, halves going to the even digit."""
    return Decimal(round(value * 10**digits)).scaleb(-digits)


def cut(value: Fraction, digits: int) -> Decimal:
    """A number with the digits after its point cut off."""
    exact = Decimal(value.numerator) / Decimal(value.denominator)
    return exact.quantize(Decimal(1).scaleb(-digits), rounding=ROUND_DOWN)


@given(st.sampled_from([printed, cut]), st.integers(1, 3000), st.data(), DIGITS)
def test_every_share_of_items_is_possible_and_agrees_with_its_counts(show, items, data, digits):
    right = data.draw(st.integers(0, items))
    value = show(Fraction(100 * right, items), digits)
    assert on_grid(value, Fraction(100, items))
    text = metric(steps=1, values=f"{value:f}", counts=right, totals=items)
    assert not found(text, "not_from_counts")
    # Two units of the last digit away it does not.
    other = value + 2 * Decimal(1).scaleb(-digits)
    text = metric(steps=1, values=f"{other:f}", counts=right, totals=items)
    assert found(text, "not_from_counts")


@given(st.lists(st.integers(40, 199), min_size=2, max_size=6), st.integers(2, 5))
def test_a_mean_over_categories_that_were_not_run_is_seen_as_such(right: list[int], times: int):
    values = [printed(Fraction(right_of, 2 * times), 3) for right_of in right]
    impossible = not all(on_grid(value, Fraction(1, 2)) for value in values)
    shown = ", ".join(f"{value:f}" for value in values)
    text = two_runs(f"[{shown}]", [50.0] * 20, more=f"categories = {times}")
    flaws = found(text, "fraction_of_plausible")
    assert [flaw.values["times"] for flaw in flaws] == [times] * impossible


def test_a_quarter_of_half_percent_steps_is_restored():
    scores = "[14.25, 15.50]", [20.0, 20.5, 21.0]
    (flaw,) = found(two_runs(*scores), "fraction_of_plausible")
    assert flaw.values["all"] == "2, 4, 6"
    (flaw,) = found(two_runs(*scores, more="categories = 4"), "fraction_of_plausible")
    assert (flaw.values["times"], flaw.values["restored"]) == (4, "57.00, 62.00")


@given(st.decimals(0, 5, places=5), st.decimals(0, 1, places=5))
def test_a_rounded_loss_adds_up(part: Decimal, term: Decimal):
    total = printed(Fraction(part) + Fraction("0.12") * Fraction(term), 5)
    assert found(losses((f"{total:f}", f"{part:f}", f"{term:f}")), "identity_holds")
    wrong = total + Decimal("0.00003")
    assert found(losses((f"{wrong:f}", f"{part:f}", f"{term:f}")), "identity_fails")


@given(st.decimals(1, 100, places=2), st.decimals(1, 100, places=2), st.booleans())
def test_a_rounded_change_is_right(before: Decimal, after: Decimal, relative: bool):
    change = Fraction(after) - Fraction(before)
    says = printed(change * 100 / Fraction(before) if relative else change, 1)
    kind = "true" if relative else "false"
    row = f"before = {before:f}\nafter = {after:f}\nsays = {says:f}\nrelative = {kind}\n"
    assert not found('[[changes]]\nof = "c"\n' + row, "wrong_change")
    wrong = row.replace(f"says = {says:f}", f"says = {says + 9 + abs(says):f}")
    assert found('[[changes]]\nof = "c"\n' + wrong, "wrong_change")


def test_a_harmonic_score_is_tried_with_all_counts_that_round_to_the_scores():
    # 0.412 of 500 is 206 alone; 0.4 of 40 may be 15 to 17 when printed with one digit.
    text = search("1.1001").replace("A = 0.400", "A = 0.4")
    assert found(text, "harmonic_holds")[0].values["counts"] == "16/40, 206/500"


@pytest.mark.parametrize(
    ("facts", "falls"),
    [
        ({"steps": [20, 40, 60], "counts": [12, 31, 27], "cumulative": "true"}, True),
        ({"steps": [20, 40, 60], "counts": [12, 27, 31], "cumulative": "true"}, False),
        (
            {"steps": [1, 2], "values": [1.84, 1.71], "cumulative": "true", "meaning": '"cost"'},
            True,
        ),
        # A rate since the start may fall.
        ({"steps": [1, 2], "values": [18.4, 17.1], "cumulative": "true"}, False),
        ({"steps": [1, 2], "counts": [31, 27]}, False),
    ],
)
def test_a_count_or_a_sum_since_the_start_never_goes_down(facts: dict[str, object], falls: bool):
    assert bool(found(metric(**facts), "running_count_fell")) is falls


@pytest.mark.parametrize(
    ("shown", "possible"),
    [
        *((shown, True) for shown in ("66.67", "66.7", "66.6", "66.66", "67", "66")),
        *((shown, False) for shown in ("66.5", "66.65", "66.68", "66.8", "65")),
    ],
)
def test_two_thirds_may_be_rounded_or_cut_off(shown: str, possible: bool):
    assert prints(Decimal(shown), Fraction(200, 3)) is possible


def test_negative_numbers_are_cut_off_towards_zero():
    low, high = cut_off(Decimal("-1.2"))
    inside = [low <= Fraction(number) <= high for number in ("-1.29", "-1.3", "-1.19")]
    assert inside == [True, False, False]


def test_a_change_of_two_numbers_takes_both_as_rounded_or_both_as_cut_off():
    row = '[[changes]]\nof = "c"\nbefore = 43.7\nafter = 45.9\nsays = {}\n'
    assert not found(row.format("2.2"), "wrong_change")
    assert not found(row.format("2.3"), "wrong_change")
    assert found(row.format("2.4"), "wrong_change")
    assert found(row.format("2.0"), "wrong_change")
    from_zero = row.replace("43.7", "0").format("3")
    assert found(from_zero, "wrong_change")
    assert not found(from_zero + "relative = true\n", "wrong_change")


def test_more_right_ones_than_items_cannot_be_and_are_compared_with_nothing():
    text = two_runs(20.0, 60.0).replace("scores = 60.0", "right = 410").replace("200", "400")
    assert [flaw.code for flaw in found(text)] == ["not_from_counts"]


def test_scores_of_several_passes_have_smaller_steps():
    scores = one_run("scores = [52.4, 52.8]").replace("400", "25")
    assert found(scores, "impossible_granularity")
    assert not found(scores.replace("[scoring]", "[scoring]\nstep = 0.1"), "impossible_granularity")


VALUES = st.lists(st.integers(0, 1000), min_size=2, max_size=6)


@given(VALUES, st.integers(0, 2))
def test_a_mean_of_unrounded_scores_follows_from_rounded_ones(tenths: list[int], digits: int):
    exact = [Fraction(value, 10) for value in tenths]
    scores = ", ".join(f"{printed(value, digits):f}" for value in exact)
    mean = printed(sum(exact, Fraction(0)) / len(exact), digits)
    assert not found(average_of(f"{mean:f}", scores))
    assert found(average_of(f"{mean + 3:f}", scores), "mark_not_mean")


@pytest.mark.parametrize("points", ["", "points = 5\n"])
def test_the_best_checkpoint_of_the_test_is_named_without_a_number_of_items(points: str):
    text = '[[runs]]\nname = "a"\nscores = 50.0\n[[searches]]\nchosen = "a"\n' + points
    assert [flaw.code for flaw in found(text)] == ["chosen_on_test"]
    assert not found(text + 'on = "dev"\n')
    counted = text.replace("scores = 50.0", "scores = 50.0\nitems = 400")
    assert found(counted)[0].code == ("best_of_many" if points else "chosen_on_test")
