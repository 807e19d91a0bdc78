"""Prices: exact, dated, and never 0 for a model that is not in the table."""

from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import InputError
from assay.experiment.price_table import (
    NANO,
    SHIPPED,
    TokenPrice,
    price_at,
    read_prices,
    token_price,
)

TABLE = """
[[price]]
model = "m"
prompt = 2.5
completion = 10.0
from = 2024-05-13

[[price]]
model = "m"
prompt = 5.0
completion = 15.0
from = 2024-01-01
source = "a price list"
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "prices.toml"
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("day", "expected"),
    [
        (date(2023, 12, 31), None),
        (date(2024, 1, 1), token_price(5.0, 15.0)),
        (date(2024, 5, 12), token_price(5.0, 15.0)),
        (date(2024, 5, 13), token_price(2.5, 10.0)),
        (date(2030, 1, 1), token_price(2.5, 10.0)),
    ],
)
def test_the_price_is_the_one_in_force_on_the_day(tmp_path, day, expected):
    assert price_at(read_prices(written(tmp_path, TABLE)), "m", day) == expected


@given(
    st.decimals(0, 10**6, places=3),
    st.decimals(0, 10**6, places=3),
    st.integers(0, 10**7),
    st.integers(0, 10**7),
)
def test_costs_are_exact_to_the_nano_unit_and_never_below(prompt, completion, read, wrote):
    exact = (Decimal(read) * prompt + Decimal(wrote) * completion) / 10**6 * NANO
    cost = token_price(float(prompt), float(completion)).of(read, wrote)
    assert 0 <= cost - exact < 1


def test_the_shipped_table_has_the_published_prices_with_their_dates():
    prices = {each.model: (each.prompt, each.completion) for each in read_prices(SHIPPED)}
    per_thousand = {
        "gpt-4o": (0.0025, 0.01),
        "gpt-4o-mini": (0.00015, 0.0006),
        "claude-3-5-sonnet": (0.003, 0.015),
        "o3-mini": (0.0011, 0.0025),
    }
    million = {m: tuple(round(1000 * each, 9) for each in two) for m, two in per_thousand.items()}
    assert prices == million
    assert all(each.source for each in read_prices(SHIPPED))
    assert price_at(read_prices(SHIPPED), "gpt-4o-mini", date(2026, 1, 1)) == TokenPrice(
        150_000_000, 600_000_000
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[[prise]]\nmodel = 'm'\n", "prices.toml: prise: unknown key (write [[price]] tables)"),
        (TABLE.replace("prompt = 5.0", "prompt = -1.0"), "price.1.prompt: must be at least 0"),
        (TABLE.replace("2024-01-01", "2024-05-13"), "'m' has two prices from 2024-05-13"),
    ],
)
def test_a_wrong_table_is_named_by_file_and_field(tmp_path, text, expected):
    with pytest.raises(InputError) as raised:
        read_prices(written(tmp_path, text))
    assert expected in str(raised.value) and str(tmp_path) in str(raised.value)
