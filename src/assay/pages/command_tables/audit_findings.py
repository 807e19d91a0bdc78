"""Words for the findings of `assay audit`, in the language of the page.

Text from the audited file is made safe to show. Nothing is judged here.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay.data.reported.instructions import Refused
from assay.data.reported.read_reported import Reading, results
from assay.data.reported.tables import Unused
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


def unused_lines(unused: Sequence[Unused], lang: str = "en") -> list[str]:
    """One line for each reason: the columns, rows and tables that were not used for it."""
    w = words(lang)
    named: dict[str, list[str]] = {}
    for part in unused:
        name = one_line(part.name) or "–"
        named.setdefault(part.why, []).append(
            w(f"audit_part.{part.kind}", name=name, line=part.line)
        )
    return [w(f"audit_unused.{why}", parts=", ".join(parts)) for why, parts in named.items()]


def summary(file: Path, reading: Reading, flaws: Sequence[Finding], lang: str = "en") -> str:
    """One line: how much was read and how much was found."""
    found = [flaw.severity for flaw in flaws]
    return words(lang)(
        "audit.summary",
        file=visible(str(file)),
        results=sum(map(results, reading.records)),
        errors=found.count("error"),
        warnings=found.count("warning"),
        notes=found.count("note"),
    )


def refused_findings(refused: Sequence[Refused], lang: str = "en") -> list[Finding]:
    """Extracted values that do not appear in the lines cited for them."""
    return [_refused(each, words(lang)) for each in refused]


def extracted(file: Path, refused: Sequence[Refused], lang: str = "en") -> str:
    """One line: the path of the record, the number of refused values, how it is judged."""
    return words(lang)("audit.extracted", file=visible(str(file)), refused=len(refused))


def _refused(refused: Refused, w: Words) -> Finding:
    lines = ", ".join(map(str, refused.lines))
    evidence = w("audit.not_in_line", lines=lines) if lines else w("audit.no_line")
    shown = {"place": one_line(refused.place), "value": one_line(refused.value)}
    return Finding("warning", w("audit.refused", **shown), evidence, w("audit.refused_settle"))


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
