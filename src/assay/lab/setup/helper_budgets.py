"""Keeps what a helper model costs within its budgets, exactly, however many calls run at once.

The most that a call can cost is reserved before it is sent and replaced by what it did cost. What
has no room is refused; nothing is sent or recorded here.
"""

import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from assay.experiment.price_table import units
from assay.runs.cost_ledger import LedgerCall
from assay.tasks.helper_model import BudgetScope, Caller, OverBudget

Key = tuple[BudgetScope, tuple[str, ...]]
"""One budget: its scope and what it is the budget of."""


class EatenByFailures(Exception):
    """A problem's budget has no room, but would have without calls that the endpoint lost."""


@dataclass
class HelperBudgets:
    """The budgets of one helper model; safe to use from several threads."""

    model: str
    """The name of its table."""
    limits: Mapping[BudgetScope, int]
    """Nano-units; a scope without one is not bounded."""
    _spent: Counter[Key] = field(default_factory=Counter)
    """Nano-units spent and reserved."""
    _lost: Counter[Key] = field(default_factory=Counter)
    """Those of them that went to attempts without an answer."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def count(self, calls: Iterable[LedgerCall]) -> None:
        """Count what earlier sessions of the run spent, on the run and on its steps.

        Not on problems: one that is tried again after a kill is not to blame for the first try.
        """
        with self._lock:
            for call in calls:
                if call.model == self.model:
                    self._spent["run", ()] += call.most
                    self._spent["step", (call.stage, str(call.step))] += call.most

    def forget(self) -> None:
        """Begin anew, for another run."""
        with self._lock:
            self._spent.clear()
            self._lost.clear()

    def forget_problems(self) -> None:
        """Begin the budgets of problems anew, for another step or evaluation."""
        with self._lock:
            for counted in (self._spent, self._lost):
                for key in [key for key in counted if key[0] == "problem"]:
                    del counted[key]

    def reserve(self, caller: Caller, amount: int, before: int = 0) -> None:
        """Take nano-units from every budget of `caller`, or from none.

        `before` was spent on earlier attempts at the same call. Raises OverBudget, and
        EatenByFailures.
        """
        keys = self._keys(caller)
        with self._lock:
            self._refuse("call", before, amount)
            for key in keys:
                if key[0] == "problem" and self._fits(key, amount - self._lost[key]):
                    self._refuse_eaten(key, amount)
                self._refuse(key[0], self._spent[key], amount)
            for key in keys:
                self._spent[key] += amount

    def settle(self, caller: Caller, reserved: int, spent: int, lost: int = 0) -> None:
        """Replace a reservation by what was spent, of which `lost` got no answer."""
        with self._lock:
            for key in self._keys(caller):
                self._spent[key] += spent - reserved
                self._lost[key] += lost

    def _keys(self, caller: Caller) -> list[Key]:
        keys: list[Key] = [("run", ())]
        if caller.stage:
            keys.append(("step", (caller.stage, str(caller.step))))
        if caller.problem:
            place = (caller.stage, str(caller.step), caller.problem, caller.completion)
            keys.append(("problem", place))
        return keys

    def _fits(self, key: Key, amount: int) -> bool:
        limit = self.limits.get(key[0])
        return limit is None or self._spent[key] + amount <= limit

    def _refuse_eaten(self, key: Key, amount: int) -> None:
        if not self._fits(key, amount):
            raise EatenByFailures(self._why(key[0], self._spent[key], amount))

    def _refuse(self, scope: BudgetScope, spent: int, amount: int) -> None:
        limit = self.limits.get(scope)
        if limit is not None and spent + amount > limit:
            raise OverBudget(scope, self._why(scope, spent, amount))

    def _why(self, scope: BudgetScope, spent: int, amount: int) -> str:
        limit = units(self.limits[scope])
        return (
            f"model.{self.model}.budget.{scope}: {units(spent):g} of {limit:g} spent or reserved, "
            f"and the next call may cost {units(amount):g}"
        )
