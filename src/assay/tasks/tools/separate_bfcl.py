"""BFCL rows to train on, apart from the BFCL categories that are the test."""

from collections.abc import Sequence

from assay.tasks.separate_rows import separate
from assay.tasks.task import Loaded
from assay.tasks.tools.single_turn import entries, read_bfcl


def training_rows(category: str, against: Sequence[str]) -> Loaded:
    """The rows of `category` that share nothing with any entry of the categories `against`.

    Rows without a target are dropped as well. Raises UnknownNameError for an unknown category.
    """
    loaded = read_bfcl(category)
    kept = separate(loaded.rows, [row for name in against for row in entries(name)])
    return Loaded(kept.rows, {**loaded.dropped, **kept.dropped})
