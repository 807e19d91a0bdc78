"""Words for the findings of `assay audit`, in the language of the page.

Text from the audited file is made safe to show. Nothing is judged here.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay.data.reported.read_reported import ReportFile, results
from assay.errors import Finding
from assay.pages.words import Words, visible, worded, words

CLAUSES = {
    "family": ("of_family", "corrected"),
    "needed": ("takes", "takes_unpaired", "takes_trials"),
}
"""Parts of sentences that are omitted if their figure carries no information."""
NOTHING = {"family": 1, "needed": 0}
"""One comparison is no family, and no number of items shows a difference of 0."""


def audit_findings(flaws: Sequence[Finding], lang: str = "en") -> list[Finding]:
    """Each flaw as a finding: the problem, the evidence with its line, the fix.

    Raises InputError.
    """
    return [_finding(flaw, words(lang)) for flaw in flaws]


def summary(
    file: Path, reading: ReportFile, flaws: Sequence[Finding], lang: str = "en"
) -> list[str]:
    """How much was read and how much was found; before it the tables that were not read."""
    w, found = words(lang), [flaw.severity for flaw in flaws]
    skipped = ", ".join(map(str, reading.skipped))
    lines = [w("audit.skipped", lines=skipped)] if skipped else []
    said = w(
        "audit.summary",
        file=visible(str(file)),
        results=sum(map(results, reading.records)),
        errors=found.count("error"),
        warnings=found.count("warning"),
        notes=found.count("note"),
    )
    return [*lines, said]


def _finding(flaw: Finding, w: Words) -> Finding:
    values: dict[str, Any] = {
        name: one_line(value) if isinstance(value, str) else value
        for name, value in flaw.values.items()
    }
    values["about"] = values["about"] or w("audit.whole")
    for name in ("place", "other"):
        values[name] = values.get(name) or w("audit.own_place")
    for name, section in (
        ("says", "audit_word"),
        ("reads", "audit_word"),
        ("means", "audit_means"),
    ):
        if isinstance(values.get(name), str):
            word = str(values[name])
            values[name] = w.sections[section].get(word, word)
    for figure, clauses in CLAUSES.items():
        said = int(flaw.values.get(figure, 0)) > NOTHING[figure]
        values |= {name: w(f"audit.{name}", **values) if said else "" for name in clauses}
    said = worded(replace(flaw, values=values), w)
    if values["line"] is None:
        return said
    return replace(said, evidence=w("audit.line", line=values["line"], evidence=said.evidence))


def one_line(text: str) -> str:
    """Text of the audited file in one line, without control characters."""
    return visible(" ".join(text.split()))
