"""Finds selections for a query and has the frozen model judge them: sequence data and RL data.

Sequence data (Lever-LM): the beams of a search by InfoScore. RL data (Lever-Plus): selections of
several origins, every set of demonstrations once. What a selector prefers is asked elsewhere, and
files are `selection_file`'s.
"""

import hashlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from assay.data.row import Row
from assay.errors import InputError
from assay.labs.demos.demonstrations import POOL, SHOTS
from assay.labs.demos.frozen import judge, target_probabilities
from assay.labs.demos.selection_file import METHODS, Candidate, Method
from assay.tasks.helper_model import HelperModel

Picks = tuple[int, ...]
Probability = Callable[[Sequence[Picks]], Sequence[float]]
"""P of the right answer after each of several picks."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A selection before the frozen model was asked."""

    picks: Picks
    """Numbers of demonstrations; the first stands next to the query, see `conversation`."""
    method: Method
    rank: int | None = None
    """Place in its beam search, from 0."""
    score: float | None = None
    """What the search ranked by: of a beam by InfoScore their sum, above 0 where they help."""
    temperature: float | None = None


def beam_search(
    pool: Sequence[int], shots: int, width: int, probability: Probability
) -> list[Proposal]:
    """The best selections of `shots` of `pool`, the most helpful first; at most `width`.

    InfoScore of a candidate c after the picks S (Lever-LM): P(y | S, c, x) - P(y | S, x), with P
    the probability of the right answer y to the query x; POSITIVE where c helps. A selection's
    score is the sum over its picks, P(y | picks, x) - P(y | x). Lever-LM's own code ranks by the
    last step alone, which prefers a pick that repairs a bad one.

    Each step puts every candidate that is not picked yet between a selection that was kept and the
    query, so that the prompts share all that stands before it, and keeps the `width` best. Equal
    ones keep the order of the pool.
    Raises InputError.
    """
    if shots > len(pool):
        problem = f"{shots} picks of {len(pool)} candidates"
        raise InputError(problem, field="shots", fix="take a larger pool, or fewer shots")
    places = {number: place for place, number in enumerate(pool)}
    (alone,) = probability([()])
    kept: list[tuple[Picks, float]] = [((), 0.0)]
    for _ in range(shots):
        states = [(n, *picks) for picks, _ in kept for n in pool if n not in picks]
        found = zip(states, probability(states), strict=True)
        beams = [(picks, likely - alone) for picks, likely in found]
        beams.sort(key=lambda beam: (-beam[1], [places[pick] for pick in beam[0]]))
        kept = beams[:width]
    return [Proposal(picks, "beam", rank, score) for rank, (picks, score) in enumerate(kept)]


def searched(pool_size: int, shots: int, width: int) -> int:
    """How many probabilities a search asks for."""
    total, kept = 1, 1
    for step in range(shots):
        states = kept * (pool_size - step)
        total, kept = total + states, min(width, states)
    return total


def beam_candidates(frozen: HelperModel, row: Row, width: int) -> list[Candidate]:
    """The beams of a search by InfoScore with their outcomes, the most helpful first.

    Raises HelperFailed, and InputError as where a model gives no log-probabilities.
    """
    asked = partial(target_probabilities, frozen, row)
    found = beam_search(row.extra[POOL], row.extra[SHOTS], width, asked)
    return judged(frozen, row, found, None)


def judged(
    frozen: HelperModel,
    row: Row,
    proposals: Sequence[Proposal],
    logps: Sequence[float] | None,
) -> list[Candidate]:
    """Proposals with what the frozen model makes of them; `logps` are the selector's."""
    outcomes = judge(frozen, [(row, each.picks) for each in proposals])
    likely: Sequence[float | None] = logps or [None] * len(proposals)
    return [
        Candidate(each.picks, each.method, outcome, each.rank, each.score, logp, each.temperature)
        for each, outcome, logp in zip(proposals, outcomes, likely, strict=True)
    ]


def distinct(proposals: Sequence[Proposal]) -> list[Proposal]:
    """Each set of demonstrations once, whatever its order: by beam, retrieval, sample and random in
    this order, and of one method the first."""
    ranked = sorted(proposals, key=lambda each: METHODS.index(each.method))
    kept: dict[frozenset[int], Proposal] = {}
    for each in ranked:
        kept.setdefault(frozenset(each.picks), each)
    return [*kept.values()]


def retrieved(row: Row, similarity: Mapping[int, float], count: int) -> list[Proposal]:
    """The `count` sets of the pool with the largest sum of similarities to the query, each with its
    most similar demonstration first; of equal ones the first in the pool."""
    shots = row.extra[SHOTS]
    nearest = sorted(row.extra[POOL], key=lambda number: -similarity[number])
    # A set among the `count` best leaves out fewer than `count` that are more similar.
    sets = itertools.combinations(nearest[: shots + count - 1], shots)
    best = sorted(sets, key=lambda picks: -sum(similarity[number] for number in picks))
    return [Proposal(picks, "retrieval", rank) for rank, picks in enumerate(best[:count])]


def drawn(row: Row, count: int, seed: int) -> list[Proposal]:
    """`count` selections drawn from the pool, by the seed and the row alone."""
    digest = hashlib.sha256(f"{seed}/{row.id}".encode()).digest()
    generator = np.random.default_rng(int.from_bytes(digest[:16], "big"))
    pool, shots = np.array(row.extra[POOL], dtype=int), row.extra[SHOTS]
    picks = [generator.choice(pool, shots, replace=False).tolist() for _ in range(count)]
    return [Proposal(tuple(each), "random") for each in picks]
