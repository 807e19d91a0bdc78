"""Findings and verdicts in English words, as pages and commands show them."""

from assay.errors import Finding
from assay.judge import verdict
from assay.pages.words import worded, words


def english(found: Finding | None) -> Finding:
    """The finding in words; fails where there is none."""
    assert found is not None
    return worded(found, words())


def explain(found: verdict.Comparison) -> str:
    """The sentences of a comparison."""
    return verdict.explain(found, words().verdicts)
