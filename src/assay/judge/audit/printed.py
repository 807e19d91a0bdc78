"""What a printed number may stand for: all that round to it, and all that are cut off to it.

2/3 may be printed as 66.67, 66.7, 66.66 or 66.6. A report does one or the other in one place, so
that numbers which are held against each other are taken as all rounded or as all cut off.
"""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import ceil


@dataclass(frozen=True, slots=True)
class Range:
    """The numbers from low to high. The ends belong to it, unless they are `open`."""

    low: Fraction
    high: Fraction
    open_low: bool = False
    open_high: bool = False

    def __add__(self, other: "Range") -> "Range":
        return Range(
            self.low + other.low,
            self.high + other.high,
            self.open_low or other.open_low,
            self.open_high or other.open_high,
        )

    def __neg__(self) -> "Range":
        return Range(-self.high, -self.low, self.open_high, self.open_low)

    def __sub__(self, other: "Range") -> "Range":
        return self + -other

    def times(self, factor: Fraction | int) -> "Range":
        """The range stretched."""
        if factor < 0:
            return (-self).times(-factor)
        return Range(self.low * factor, self.high * factor, self.open_low, self.open_high)

    def over(self, other: "Range") -> "Range":
        """The quotient; the other range lies above 0."""
        ends = [self.low / other.low, self.low / other.high]
        ends += [self.high / other.low, self.high / other.high]
        return Range(min(ends), max(ends))

    def meets(self, other: "Range") -> bool:
        """Whether a number is in both."""
        apart = self.low > other.high or other.low > self.high
        ends = ((self, other), (other, self))
        touch = any(a.low == b.high and (a.open_low or b.open_high) for a, b in ends)
        return not apart and not touch

    def holds_multiple(self, unit: Fraction) -> bool:
        """Whether a whole number of units is in it."""
        first = ceil(self.low / unit) * unit
        if first == self.low and self.open_low:
            first += unit
        return first < self.high or (first == self.high and not self.open_high)


Mode = Callable[[Decimal], Range]


def rounding(value: Decimal) -> Fraction:
    """Half a unit of the last printed digit."""
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int), "readers admit finite numbers only"
    return Fraction(10) ** exponent / 2


def rounded(value: Decimal) -> Range:
    """What rounds to the value."""
    return Range(Fraction(value) - rounding(value), Fraction(value) + rounding(value))


def cut_off(value: Decimal) -> Range:
    """What begins with the digits of the value: further from 0 by less than its last digit."""
    number, digit = Fraction(value), 2 * rounding(value)
    if value.is_signed():
        return Range(number - digit, number, open_low=True)
    return Range(number, number + digit, open_high=True)


MODES: tuple[Mode, ...] = (rounded, cut_off)


def exactly(value: Decimal | Fraction | int) -> Range:
    """The one number."""
    return Range(Fraction(value), Fraction(value))


def prints(value: Decimal, number: Fraction) -> bool:
    """Whether a number may be printed as the value."""
    return any(mode(value).meets(exactly(number)) for mode in MODES)


def on_grid(value: Decimal, unit: Fraction, times: int = 1) -> bool:
    """Whether `times` what the value stands for may be a whole number of units."""
    return any(mode(value).times(times).holds_multiple(unit) for mode in MODES)


def mean_of(values: tuple[Decimal, ...], mode: Mode) -> Range:
    """The mean of what the values stand for."""
    total = sum(map(mode, values), exactly(0))
    return total.times(Fraction(1, len(values)))
