"""Numbers that cannot be: no rounding of a possible number is ever called impossible."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.judge.audit.cells import on_grid
from tests.judge.audit.faults import found, losses, metric, search, two_runs

DIGITS = st.integers(0, 4)


def printed(value: Fraction, digits: int) -> Decimal:
    """A number as it is printed with some digits, halves going to the even digit."""
    return Decimal(round(value * 10**digits)).scaleb(-digits)


@given(st.integers(1, 3000), st.data(), DIGITS)
def test_every_rounded_share_of_items_is_possible(items: int, data: st.DataObject, digits: int):
    right = data.draw(st.integers(0, items))
    value = printed(Fraction(100 * right, items), digits)
    assert on_grid(value, Fraction(100, items))


@given(st.lists(st.integers(40, 199), min_size=2, max_size=6), st.integers(2, 5))
def test_a_mean_over_categories_that_were_not_run_is_seen_as_such(right: list[int], times: int):
    values = [printed(Fraction(right_of, 2 * times), 3) for right_of in right]
    impossible = not all(on_grid(value, Fraction(1, 2)) for value in values)
    shown = ", ".join(f"{value:f}" for value in values)
    text = two_runs(f"[{shown}]", [50.0] * 20, more=f"categories = {times}")
    flaws = found(text, "fraction_of_plausible")
    assert [flaw.values["times"] for flaw in flaws] == [times] * impossible


def test_a_quarter_of_half_percent_steps_is_restored():
    (flaw,) = found(two_runs("[14.25, 15.50]", [20.0, 20.5, 21.0]), "fraction_of_plausible")
    assert flaw.values["all"] == "2, 4, 6"
    (flaw,) = found(
        two_runs("[14.25, 15.50]", [20.0, 20.5, 21.0], more="categories = 4"),
        "fraction_of_plausible",
    )
    assert (flaw.values["times"], flaw.values["restored"]) == (4, "57.00, 62.00")


@given(st.integers(1, 400), st.data(), DIGITS)
def test_a_rounded_rate_agrees_with_its_counts(total: int, data: st.DataObject, digits: int):
    count = data.draw(st.integers(0, total))
    value = printed(Fraction(100 * count, total), digits)
    text = metric(steps=1, values=f"{value:f}", counts=count, totals=total)
    assert not found(text, "not_from_counts")
    # Two units of the last digit away it does not.
    other = value + 2 * Decimal(1).scaleb(-digits)
    text = metric(steps=1, values=f"{other:f}", counts=count, totals=total)
    assert found(text, "not_from_counts")


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
