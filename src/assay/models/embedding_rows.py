"""Finds rows of a model's embedding that were never trained, in its files and without loading it.

A row that was added to a trained embedding is 0, or the mean of the others but for a little noise,
which is how Transformers resizes (Hewitt, 2021, nlp.stanford.edu/~johnhew/vocab-expansion.html); or
it is equal to another added one. Rows drawn at random as large as trained ones are not told apart.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from assay.models.folder import weight_files

SAMPLE = 512
"""Rows that stand for the whole embedding."""
NEAR = 0.1
"""Of the others' median distance to their mean: a closer row is the mean."""


def untrained_rows(folder: Path, vocabulary: int, ids: Sequence[int]) -> set[int]:
    """Those of the ids whose row is untrained in a matrix of so many rows: the embedding, or the
    output head."""
    found: set[int] = set()
    for file in weight_files(folder):
        with safe_open(file, framework="pt") as weights:
            for name in list(weights.keys()):
                part = weights.get_slice(name)
                if len(part.get_shape()) == 2 and part.get_shape()[0] == vocabulary:
                    step = max(1, vocabulary // SAMPLE)
                    sample_SD = rows_of(part, range(0, vocabulary, step))
                    found |= untrained(sample_SD, rows_of(part, ids), ids)
    return found


def rows_of(part: object, ids: Sequence[int]) -> Tensor:
    """Rows (R, D) of a matrix in a file."""
    return torch.cat([part[i : i + 1] for i in ids]).float()  # type: ignore[index]


def untrained(sample_SD: Tensor, rows_RD: Tensor, ids: Sequence[int]) -> set[int]:
    """The ids of rows that are 0, the mean of the sample, or equal to another row of them."""
    mean_D = sample_SD.mean(dim=0)
    usual = (sample_SD - mean_D).norm(dim=1).median()
    near_R = (rows_RD - mean_D).norm(dim=1) < NEAR * usual
    same_R = (torch.cdist(rows_RD, rows_RD) == 0).sum(dim=1) > 1
    empty_R = ~rows_RD.any(dim=1)
    return {i for i, bad in zip(ids, (near_R | same_R | empty_R).tolist(), strict=True) if bad}
