"""Candidate pools: which demonstrations a query may pick from, a pool of its own for each.

A pool depends on the seed, the query and the demonstrations, on no other query and no order of
queries; the query itself and whatever asks the same are never in it. Samplers are asked for each
query, and none knows the first rows of a set. Nothing is scored here.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.data.files import normalise_text
from assay.data.message_parts import images_in
from assay.data.row import Message, Row
from assay.errors import InputError, look_up
from assay.labs.demos.demonstrations import (
    ANSWERS,
    POOL,
    DemonstrationSet,
    Query,
    query_row,
    set_of,
)
from assay.labs.demos.outcomes import METRICS

Features = NDArray[np.float32]
BLOCK = 512
"""Queries that are compared with all demonstrations at once."""
DIGITS = 6
"""Decimals of a similarity: what rounds to the same is a tie, whatever the order of a sum."""


def text_features(messages: Sequence[Message], wheres: Sequence[str]) -> Features:
    """Unit vectors (N, D) of what questions say."""
    from assay.models.embeddings import embed_texts

    return embed_texts([message.content for message in messages]).numpy()


def image_features(messages: Sequence[Message], wheres: Sequence[str]) -> Features:
    """Unit vectors (N, D) of questions' images, of several the direction of their mean.

    Raises InputError for a question without one, with its place of `wheres`.
    """
    images, owners = [], []
    for n, (message, where) in enumerate(zip(messages, wheres, strict=True)):
        own = images_in([message])
        if not own:
            fix = "sample by text_similarity, or give the option images"
            raise InputError("the question has no image to be compared by", file=where, fix=fix)
        images += own
        owners += [n] * len(own)
    from assay.models.embeddings import embed_images

    features_FD = embed_images(images).numpy()
    summed_ND = np.zeros((len(messages), features_FD.shape[1]), np.float32)
    np.add.at(summed_ND, owners, features_FD)
    return summed_ND / np.linalg.norm(summed_ND, axis=1, keepdims=True)


Encode = Callable[[Sequence[Message], Sequence[str]], Features]
"""Unit vectors of messages, each with its place for errors."""
SIMILARITIES: Mapping[str, Encode] = {
    "text_similarity": text_features,
    "image_similarity": image_features,
}


def most_similar(
    queries_QD: Features,
    demonstrations_ND: Features,
    count: int,
    excluded: Sequence[Collection[int]],
) -> Iterator[tuple[int, ...]]:
    """For each query its `count` most similar demonstrations by cosine, the most similar first, of
    equally similar ones the one with the lower number; none of those `excluded` for it."""
    for start in range(0, len(queries_QD), BLOCK):
        block_QD = queries_QD[start : start + BLOCK].astype(np.float64)
        scores_QN = np.round(block_QD @ demonstrations_ND.T, DIGITS)
        for place, score_N in enumerate(scores_QN, start):
            score_N[list(excluded[place])] = -np.inf
            lowest = np.partition(score_N, -count)[-count]
            kept_K = np.flatnonzero(score_N >= lowest)
            order_K = kept_K[np.argsort(-score_N[kept_K], kind="stable")]
            yield tuple(order_K[:count].tolist())


POOL_OPTIONS: Mapping[str, Any] = {"sampler": "random", "pool": 16, "pool_seed": 42, "mix": {}}
"""Options of a data set or benchmark: one of SAMPLERS, the demonstrations of a pool, and the seed
of what is drawn. `mix` is there for the names of older records."""

Pool = tuple[int, ...]
"""Numbers of demonstrations, in the order in which the sampler prefers them."""


@dataclass(frozen=True, slots=True)
class PoolRequest:
    """Pools to be chosen: `size` of the demonstrations for each query."""

    demonstrations: DemonstrationSet
    queries: Sequence[Query]
    excluded: Sequence[frozenset[int]]
    """For each query the numbers that must not be in its pool."""
    size: int
    seed: int


def with_pools(
    demonstrations: DemonstrationSet, queries: Sequence[Query], options: Mapping[str, Any]
) -> tuple[Row, ...]:
    """The queries as rows, by POOL_OPTIONS and `shots`.

    Raises InputError for an unknown sampler, InputError.
    """
    pools = pools_of(demonstrations, queries, options)
    size, shots = options["pool"], options["shots"]
    if not 0 <= shots <= size:
        problem, fix = f"{shots} shots of a pool of {size}", f"0 to {size}"
        raise InputError(problem, field="options.shots", fix=fix)
    return tuple(
        query_row(demonstrations, query, pool, shots)
        for query, pool in zip(queries, pools, strict=True)
    )


def pools_of(
    demonstrations: DemonstrationSet, queries: Sequence[Query], options: Mapping[str, Any]
) -> list[Pool]:
    """The pool of each query, by POOL_OPTIONS. Raises what `with_pools` raises."""
    size = options["pool"]
    if options.get("mix") or options["sampler"] == "mix":
        fix = "take the pools of one sampler"
        raise InputError("pools are no longer mixed", field="options.sampler", fix=fix)
    sample = look_up(SAMPLERS, options["sampler"], "sampler of pools")
    excluded = excluded_of(demonstrations, queries)
    most = len(demonstrations.demonstrations) - max(map(len, excluded), default=0)
    if not 1 <= size <= most:
        problem = f"a pool of {size} of the {most} demonstrations that a query may pick"
        raise InputError(problem, field="options.pool", fix=f"1 to {most}")
    return sample(PoolRequest(demonstrations, queries, excluded, size, options["pool_seed"]))


def excluded_of(demonstrations: DemonstrationSet, queries: Sequence[Query]) -> list[frozenset[int]]:
    """For each query the demonstrations that are it, or ask the same of the same images."""
    same = defaultdict[tuple[str, ...], set[int]](set)
    for number, shown in enumerate(demonstrations.demonstrations):
        same[_question(shown.question)].add(number)
    own = [
        {demonstrations.numbers[q.id]} if q.id in demonstrations.numbers else set[int]()
        for q in queries
    ]
    return [
        frozenset(numbers | same.get(_question(query.question), set()))
        for numbers, query in zip(own, queries, strict=True)
    ]


def _question(message: Message) -> tuple[str, ...]:
    return normalise_text(message.content), *(part.sha256 for part in images_in([message]))


def right_answers(row: Row) -> list[int]:
    """The demonstrations of a row's pool whose own answer would score something."""
    demonstrations = set_of(row)
    metric = look_up(METRICS, demonstrations.metric, "metric")
    answers = {number: demonstrations.demonstrations[number].answer for number in row.extra[POOL]}
    scores = {text: metric(text, row.extra[ANSWERS]).score for text in set(answers.values())}
    return [number for number, text in answers.items() if scores[text] > 0]


def random_pools(wanted: PoolRequest) -> list[Pool]:
    """Drawn without replacement, by the seed and the query's id."""
    every = np.arange(len(wanted.demonstrations.demonstrations))
    pools = []
    for query, excluded in zip(wanted.queries, wanted.excluded, strict=True):
        allowed = np.delete(every, sorted(excluded))
        drawn = query_generator(wanted.seed, query.id).choice(allowed, wanted.size, replace=False)
        pools.append(tuple(drawn.tolist()))
    return pools


def query_generator(seed: int, query: str) -> np.random.Generator:
    """Random numbers that follow from a seed and a query's id alone."""
    digest = hashlib.sha256(f"{seed}/{query}".encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:16], "big"))


def similar_pools(similarity: str, wanted: PoolRequest) -> list[Pool]:
    """The nearest of the query by one of SIMILARITIES, the nearest first; nothing is drawn."""
    encode, shown = SIMILARITIES[similarity], wanted.demonstrations.demonstrations
    queries_QD = encode([q.question for q in wanted.queries], [q.origin for q in wanted.queries])
    demonstrations_ND = encode([each.question for each in shown], [each.id for each in shown])
    return [*most_similar(queries_QD, demonstrations_ND, wanted.size, wanted.excluded)]


Sampler = Callable[[PoolRequest], list[Pool]]

SAMPLERS: Mapping[str, Sampler] = {
    **{name: partial(similar_pools, name) for name in SIMILARITIES},
    "random": random_pools,
}
