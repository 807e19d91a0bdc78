"""Splits a batch into micro-batches of at most a token budget, without cutting an atom.

Weights already carry the denominators of the whole batch, so the gradients of any split add up to
the gradient of the whole. A context shared by several turns is counted once, and a long one is not
computed again for every few of them: see `micro_batches`.
"""

from collections.abc import Iterator

from assay.data.episode import Context
from assay.rl.packed import Packed
from assay.rl.policy import Policy


def atoms(packed: Packed, atom: str) -> list[list[int]]:
    """Turn indices that must stay together: each turn, or the turns of an episode or a group."""
    if atom in ("token", "turn"):
        return [[n] for n in range(len(packed.contexts))]
    owner_N = packed.episode_N if atom == "episode" else packed.group_N
    members: dict[int, list[int]] = {}
    for n, owner in enumerate(owner_N.tolist()):
        members.setdefault(owner, []).append(n)
    return list(members.values())


def micro_batches(policy: Policy, packed: Packed, atom: str, budget: int) -> Iterator[Packed]:
    """Micro-batches in order; an atom larger than the budget gets one of its own.

    An atom stays with the context that it shares, beyond the budget, as long as that context is
    half of all or more: a prompt that fills the budget is not computed for each completion alone.
    So a micro-batch has at most `budget` tokens, or twice the longest context.
    """
    bill = Bill(policy, packed)
    for members in atoms(packed, atom):
        added = bill.price(members)
        if bill.turns and bill.spent + added > budget:
            alone = Bill(policy, packed).price(members)
            shared = alone - added
            if bill.spent + added > 2 * shared:
                yield packed.take(bill.turns)
                bill, added = Bill(policy, packed), alone
        bill.add(members, added)
    if bill.turns:
        yield packed.take(bill.turns)


class Bill:
    """The turns of a micro-batch so far and the tokens they cost."""

    def __init__(self, policy: Policy, packed: Packed):
        """An empty micro-batch of this batch."""
        self.policy, self.packed = policy, packed
        self.lengths = packed.offsets_N1.diff().tolist()
        self.turns: list[int] = []
        self.seen: set[Context] = set()
        self.spent = 0

    def price(self, members: list[int]) -> int:
        """Tokens that these turns would add: a context that is there already costs nothing, and
        one that goes on from the turn before costs what is new in it."""
        seen, total = set(self.seen), 0
        before = self.turns[-1] if self.turns else None
        for n in members:
            total += self.lengths[n] + self._context(n, before, seen)
            seen.add(self.packed.contexts[n])
            before = n
        return total

    def _context(self, turn: int, before: int | None, seen: set[Context]) -> int:
        context = self.packed.contexts[turn]
        if context in seen:
            return 0
        cost = self.policy.context_cost(context)
        if before is not None and self.packed.goes_on(before, turn):
            known = self.policy.context_cost(self.packed.contexts[before])
            return cost - known - self.lengths[before]
        return cost

    def add(self, members: list[int], cost: int) -> None:
        """Take these turns in."""
        self.turns += members
        self.seen |= {self.packed.contexts[n] for n in members}
        self.spent += cost
