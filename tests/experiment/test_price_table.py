"""Prices are exact."""

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from assay.experiment.price_table import NANO, TokenPrice, nano

MONEY, TOKENS = st.decimals(0, 10**6, places=3), st.integers(0, 10**7)


@given(MONEY, MONEY, TOKENS, TOKENS)
def test_costs_are_exact_to_the_nano_unit_and_never_below(prompt, completion, read, wrote):
    exact = (Decimal(read) * prompt + Decimal(wrote) * completion) / 10**6 * NANO
    cost = TokenPrice(nano(float(prompt)), nano(float(completion))).of(read, wrote)
    assert 0 <= cost - exact < 1
