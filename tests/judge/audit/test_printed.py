"""What a printed number may stand for: rounded or cut off, and nothing beyond."""

from decimal import ROUND_DOWN, Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.judge.audit.cells import (
    cut_off,
    exactly,
    on_grid,
    prints,
)
from tests.judge.audit.faults import found, metric

DIGITS = st.integers(0, 4)


def cut(value: Fraction, digits: int) -> Decimal:
    """A number with the digits after its point cut off."""
    exact = Decimal(value.numerator) / Decimal(value.denominator)
    return exact.quantize(Decimal(1).scaleb(-digits), rounding=ROUND_DOWN)


@pytest.mark.parametrize(
    ("shown", "possible"),
    [
        *((shown, True) for shown in ("66.67", "66.7", "66.6", "66.66", "67", "66")),
        *((shown, False) for shown in ("66.5", "66.65", "66.68", "66.8", "65")),
    ],
)
def test_two_thirds_may_be_rounded_or_cut_off(shown: str, possible: bool):
    assert prints(Decimal(shown), Fraction(200, 3)) is possible


@given(st.integers(1, 3000), st.data(), DIGITS)
def test_every_share_of_items_that_is_cut_off_is_possible(
    items: int, data: st.DataObject, digits: int
):
    right = data.draw(st.integers(0, items))
    value = cut(Fraction(100 * right, items), digits)
    assert on_grid(value, Fraction(100, items))
    text = metric(steps=1, values=f"{value:f}", counts=right, totals=items)
    assert not found(text, "not_from_counts")


def test_negative_numbers_are_cut_off_towards_zero():
    assert cut_off(Decimal("-1.2")).meets(exactly(Fraction("-1.29")))
    assert not cut_off(Decimal("-1.2")).meets(exactly(Fraction("-1.3")))
    assert not cut_off(Decimal("-1.2")).meets(exactly(Fraction("-1.19")))


def test_a_change_of_two_numbers_takes_both_as_rounded_or_both_as_cut_off():
    row = '[[changes]]\nof = "c"\nbefore = 43.7\nafter = 45.9\nsays = {}\n'
    assert not found(row.format("2.2"), "wrong_change")
    assert not found(row.format("2.3"), "wrong_change")
    assert found(row.format("2.4"), "wrong_change")
    assert found(row.format("2.0"), "wrong_change")
