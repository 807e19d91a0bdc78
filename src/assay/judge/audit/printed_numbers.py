"""Ranges of the numbers that a printed one stands for: rounded, or cut off.

2/3 may be printed as 66.67, 66.7, 66.66 or 66.6; numbers of one place are compared as all rounded
or as all cut off.
"""

from collections.abc import Callable, Sequence
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
    """The numbers that round to the value."""
    return Range(Fraction(value) - rounding(value), Fraction(value) + rounding(value))


def cut_off(value: Decimal) -> Range:
    """The numbers that begin with its digits: further from 0 by less than the last of them."""
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
    """Whether `times` the printed value may be a whole number of units."""
    return any(mode(value).times(times).holds_multiple(unit) for mode in MODES)


def mean_of(values: Sequence[Decimal], mode: Mode) -> Range:
    """The mean of the numbers behind the values."""
    return sum(map(mode, values), exactly(0)).times(Fraction(1, len(values)))


def is_change(before: Decimal, after: Decimal, says: Decimal, relative: bool = False) -> bool:
    """Whether a printed number may be the difference of two, or that in percent of the first."""
    return any(_change(mode(before), mode(after), mode(says), relative) for mode in MODES)


def _change(before: Range, after: Range, says: Range, relative: bool) -> bool:
    moved = after - before
    if not relative:
        return moved.meets(says)
    size = before if before.low >= 0 else -before
    # A number that rounds to 0 has no percentages: every change may be right.
    return size.low <= 0 or moved.over(size).times(100).meets(says)
