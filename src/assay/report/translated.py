"""What other parts say in English, in the page's language: findings and the names of tests.

The catalogue knows their texts word for word, with gaps for figures and names. Names and the text
of errors stay as they are.
"""

from collections.abc import Iterable
from dataclasses import replace

from assay.judge.findings import Finding
from assay.report.words import Words


def translated(finding: Finding, words: Words) -> Finding:
    """A finding in the page's language, as far as its words are known."""
    return replace(
        finding,
        what=words.known("finding", finding.what),
        evidence=words.known("evidence", finding.evidence),
        fix=words.known("advice", finding.fix),
    )


def named_tests(methods: Iterable[str], words: Words) -> str:
    """The tests and intervals that comparisons were made with, each once."""
    parts = sorted({"; ".join(words.known("method", p) for p in m.split("; ")) for m in methods})
    return "; ".join(parts)
