"""What tokens cost: exact prices, and price tables in TOML with the dates from which they hold.

Money is counted in nano-units (1e-9 of the price's currency) as integers, so that sums are exact. A
model without a price costs an unknown amount, which is None here and never 0.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from assay.errors import InputError
from assay.experiment.base_table import Table
from assay.experiment.problems import problems_in
from assay.experiment.read_file import parse_toml, read_text

NANO = 10**9
"""Nano-units in a unit of currency."""
MILLION = 10**6
SHIPPED = Path(__file__).with_name("prices.toml")
PATH = "path:"
PerMillion = Annotated[float, Field(ge=0, le=1e6)]


@dataclass(frozen=True, slots=True)
class TokenPrice:
    """What a million tokens cost, in nano-units."""

    prompt: int
    completion: int

    def of(self, prompt: int, completion: int) -> int:
        """Nano-units of so many tokens, rounded up."""
        return -(-(prompt * self.prompt + completion * self.completion) // MILLION)


class DatedPrice(Table):
    """A `[[price]]` of a price table, per million tokens."""

    model: str
    """As the endpoint calls it, without `openai:`."""
    prompt: PerMillion
    """Of a million tokens that it reads."""
    completion: PerMillion
    """Of a million tokens that it writes."""
    start: Annotated[date, Field(alias="from")]
    """The first day on which it holds, in UTC, until the model's next entry."""
    source: str = ""
    """Where the price is written."""

    @property
    def price(self) -> TokenPrice:
        """In nano-units."""
        return token_price(self.prompt, self.completion)


def token_price(prompt: float, completion: float) -> TokenPrice:
    """A price written in units per million tokens, to nine decimals."""
    return TokenPrice(nano(prompt), nano(completion))


def nano(amount: float) -> int:
    """An amount as it is written, in nano-units; its shortest decimal form counts, not its binary
    one."""
    return round(Decimal(str(amount)) * NANO)


def units(amount: int) -> float:
    """Nano-units in units of currency."""
    return amount / NANO


def price_at(prices: Iterable[DatedPrice], model: str, day: date) -> TokenPrice | None:
    """The price of a model on a day; None where the table has none that holds by then."""
    held = [each for each in prices if each.model == model and each.start <= day]
    return max(held, key=lambda each: each.start).price if held else None


@cache
def read_prices(file: Path = SHIPPED) -> tuple[DatedPrice, ...]:
    """The entries of a price table. Raises InputError with file and field."""
    raw = parse_toml(read_text(file), file)
    if unknown := sorted(raw.keys() - {"price"}):
        raise InputError("unknown key", file=file, field=unknown[0], fix="write [[price]] tables")
    entries = raw.get("price")
    if not isinstance(entries, list) or not entries:
        raise InputError("the table has no prices", file=file, fix="write [[price]] tables")
    found: dict[tuple[str, date], DatedPrice] = {}
    for number, values in enumerate(entries):
        try:
            each = DatedPrice.model_validate(values)
        except ValidationError as invalid:
            first = problems_in(invalid.errors(include_url=False), values, DatedPrice)[0]
            field = ".".join(map(str, ("price", number, *first.path)))
            raise InputError(first.problem, file=file, field=field, fix=first.fix or None) from None
        if (each.model, each.start) in found:
            problem = f"{each.model!r} has two prices from {each.start}"
            raise InputError(problem, file=file, field=f"price.{number}.from", fix="keep one")
        found[each.model, each.start] = each
    return tuple(found.values())
