"""Findings of the audit in words: every key in both languages, no command from a file's text."""

import string

import pytest

from assay.judge.audit.arithmetic import flaw as made
from assay.judge.audit.rules import audit
from assay.pages.command_tables import CLAUSES, audit_findings
from assay.pages.words import ALIKE, FIXES, words
from tests.judge.audit.faults import FAULTS, found, record

SECTIONS = ("finding", "evidence", "fix")
ALIASES: dict[str, dict[str, str]] = {"finding": {}, "evidence": ALIKE, "fix": FIXES}


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("key", FAULTS)
def test_every_finding_is_said_in_full(key: str, lang: str):
    for flaw, said in zip(
        found(FAULTS[key][0]), audit_findings(found(FAULTS[key][0]), lang), strict=True
    ):
        assert said.severity == flaw.severity
        assert said.what and said.evidence and (said.fix or said.severity == "note")
        assert not {"{", "}", "nan"} & set(said.what + said.evidence + said.fix)


@pytest.mark.parametrize("key", FAULTS)
def test_every_figure_of_a_finding_can_be_read(key: str):
    """A figure that no sentence shows is dead weight, or was forgotten in the words."""
    sections = words("en").sections
    shown = {
        name
        for section in SECTIONS
        for _, name, _, _ in string.Formatter().parse(
            sections[section].get(ALIASES[section].get(key, key), "")
        )
        if name
    }
    (flaw, *_) = found(FAULTS[key][0], key)
    clauses = {clause for of_figure in CLAUSES.values() for clause in of_figure}
    assert shown <= {"about", "place", "other", *clauses, *flaw.values}


def test_the_line_of_the_report_stands_before_the_evidence():
    flaw = made("left_open", "warning", "r", 12, count=2, places=1, where="x")
    (said,) = audit_findings([flaw])
    assert said.evidence.startswith("line 12: ")


def test_text_of_the_file_moves_no_cursor_and_starts_no_line():
    hostile = "a\\u001b[2Jb\\nc"
    text = f'[[runs]]\nname = "{hostile}"\nscores = 5.0\nfinished = false\n'
    said = audit_findings(audit(record(text)))
    shown = "".join(one.what + one.evidence + one.fix for one in said)
    assert "\x1b" not in shown and "\n" not in shown
    assert "a␛[2Jb c" in shown
