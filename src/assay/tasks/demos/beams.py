"""Beam search for the selections that help the frozen model most, by InfoScore.

InfoScore of a candidate c after the picks S (Lever-LM): P(y | S, c, x) - P(y | S, x), with P the
probability of the right answer y to the query x. It is POSITIVE where c helps, and the highest
ranks first; a selection's score is the sum over its picks, which is P(y | picks, x) - P(y | x).
Lever-LM's own code ranks by the last step alone, which prefers a pick that repairs a bad one.
Nothing is asked here: the probabilities are the caller's function.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from assay.errors import InputError

Picks = tuple[int, ...]
Probability = Callable[[Sequence[Picks]], Sequence[float]]
"""P of the right answer after each of several picks."""


class TooFewCandidates(InputError):
    """A search for more picks than there are candidates."""


@dataclass(frozen=True, slots=True)
class Beam:
    """A selection that a search kept."""

    picks: Picks
    """Numbers of demonstrations; the first stands next to the query, see `selections`."""
    score: float
    """The sum of the InfoScores of its picks; above 0 where they help."""


def beam_search(
    pool: Sequence[int], shots: int, width: int, probability: Probability
) -> list[Beam]:
    """The best selections of `shots` of `pool`, the most helpful first; at most `width`.

    Each step puts every candidate that is not picked yet between a selection that was kept and the
    query, so that the prompts share all that stands before it, and keeps the `width` best. Equal
    ones keep the order of the pool.
    Raises TooFewCandidates.
    """
    if shots > len(pool):
        problem = f"{shots} picks of {len(pool)} candidates"
        raise TooFewCandidates(problem, field="shots", fix="take a larger pool, or fewer shots")
    places = {number: place for place, number in enumerate(pool)}
    (alone,) = probability([()])
    kept = [Beam((), 0.0)]
    for _ in range(shots):
        states = [(n, *beam.picks) for beam in kept for n in pool if n not in beam.picks]
        found = zip(states, probability(states), strict=True)
        beams = [Beam(picks, likely - alone) for picks, likely in found]
        beams.sort(key=lambda beam: (-beam.score, [places[pick] for pick in beam.picks]))
        kept = beams[:width]
    return kept


def searched(pool_size: int, shots: int, width: int) -> int:
    """How many probabilities a search asks for."""
    total, kept = 1, 1
    for step in range(shots):
        states = kept * (pool_size - step)
        total, kept = total + states, min(width, states)
    return total
