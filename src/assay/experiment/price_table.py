"""What tokens cost, exactly: money is counted in nano-units (1e-9 of the price's currency) as
integers. A model without a price costs an unknown amount, which is None and never 0.
"""

from dataclasses import dataclass
from decimal import Decimal

NANO = 10**9
"""Nano-units in a unit of currency."""
MILLION = 10**6


@dataclass(frozen=True, slots=True)
class TokenPrice:
    """What a million tokens cost, in nano-units."""

    prompt: int
    completion: int

    def of(self, prompt: int, completion: int) -> int:
        """Nano-units of so many tokens, rounded up."""
        return -(-(prompt * self.prompt + completion * self.completion) // MILLION)


def nano(amount: float) -> int:
    """An amount as it is written, in nano-units; its shortest decimal form counts, not its binary
    one."""
    return round(Decimal(str(amount)) * NANO)


def units(amount: int) -> float:
    """Nano-units in units of currency."""
    return amount / NANO
