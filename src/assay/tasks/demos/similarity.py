"""Similarity of queries and demonstrations, for pools and for picks: by their texts, or by their
images.

Unit vectors of an encoder that knows nothing of the answers; which encoder, and its cache, is
`models.embeddings`'. What is chosen by a similarity is the caller's.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from assay.data.row import ImagePart, Message
from assay.errors import InputError

Features = NDArray[np.float32]
BLOCK = 512
"""Queries that are compared with all demonstrations at once."""
DIGITS = 6
"""Decimals of a similarity: what rounds to the same is a tie, whatever the order of a sum."""


class NoImage(InputError):
    """A question without the image that it is to be compared by."""


def text_features(messages: Sequence[Message], wheres: Sequence[str]) -> Features:
    """Unit vectors (N, D) of what questions say."""
    from assay.models.embeddings import embed_texts

    return embed_texts([message.content for message in messages]).numpy()


def image_features(messages: Sequence[Message], wheres: Sequence[str]) -> Features:
    """Unit vectors (N, D) of questions' images, of several the direction of their mean.

    Raises NoImage for a question without one, with its place of `wheres`.
    """
    images, owners = [], []
    for n, (message, where) in enumerate(zip(messages, wheres, strict=True)):
        own = [part for part in message.parts if isinstance(part, ImagePart)]
        if not own:
            fix = "sample by text_similarity, or give the option images"
            raise NoImage("the question has no image to be compared by", file=where, fix=fix)
        images += own
        owners += [n] * len(own)
    from assay.models.embeddings import embed_images

    found_FD = embed_images(images).numpy()
    summed_ND = np.zeros((len(messages), found_FD.shape[1]), np.float32)
    np.add.at(summed_ND, owners, found_FD)
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
            yield _highest(score_N, count)


def _highest(score_N: NDArray[np.float64], count: int) -> tuple[int, ...]:
    """The places of the highest scores in order, of equal ones the first."""
    lowest = np.partition(score_N, -count)[-count]
    kept_K = np.flatnonzero(score_N >= lowest)
    order_K = kept_K[np.argsort(-score_N[kept_K], kind="stable")]
    return tuple(order_K[:count].tolist())
