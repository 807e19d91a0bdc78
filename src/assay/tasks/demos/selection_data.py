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
from assay.tasks.demos.beams import beam_search
from assay.tasks.demos.demonstrations import POOL, SHOTS
from assay.tasks.demos.frozen import judge, target_probabilities
from assay.tasks.demos.selection_file import METHODS, Candidate, Method
from assay.tasks.helper_model import HelperModel

Picks = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Proposal:
    """A selection before the frozen model was asked."""

    picks: Picks
    method: Method
    rank: int | None = None
    """Place in its beam search, from 0."""
    score: float | None = None
    """What the search ranked by."""
    temperature: float | None = None


def beam_candidates(frozen: HelperModel, row: Row, width: int) -> list[Candidate]:
    """The beams of a search by InfoScore with their outcomes, the most helpful first.

    Raises TooFewCandidates, HelperFailed, and InputError for a model without log-probabilities.
    """
    found = search(row, width, partial(target_probabilities, frozen, row))
    return judged(frozen, row, found, None)


def search(
    row: Row, width: int, value: Callable[[Sequence[Picks]], Sequence[float]]
) -> list[Proposal]:
    """The beams of a search in the row's pool by `value`, the highest first."""
    beams = beam_search(row.extra[POOL], row.extra[SHOTS], width, value)
    return [Proposal(beam.picks, "beam", rank, beam.score) for rank, beam in enumerate(beams)]


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
