"""Splits a batch into micro-batches of at most a token budget, without cutting an atom.

Weights already carry the denominators of the whole batch, so the gradients of any split add up to
the gradient of the whole. A context shared by several turns is counted once.
"""

from collections.abc import Iterator

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
    """Micro-batches in order; an atom larger than the budget gets one of its own."""
    lengths = packed.offsets_N1.diff().tolist()
    turns: list[int] = []
    seen: set[int] = set()
    spent = 0
    for members in atoms(packed, atom):
        fresh = {id(packed.contexts[n]): packed.contexts[n] for n in members}
        actions = sum(lengths[n] for n in members)
        added = actions + sum(policy.context_cost(c) for key, c in fresh.items() if key not in seen)
        if turns and spent + added > budget:
            yield packed.take(turns)
            turns, seen, spent = [], set(), 0
            added = actions + sum(policy.context_cost(c) for c in fresh.values())
        turns += members
        seen |= set(fresh)
        spent += added
    if turns:
        yield packed.take(turns)
